"""Integers, floats and decimals from text to Avro."""

from __future__ import annotations

from typing import Any

import numpy as np

from suiro.connect.postgres.encoding.kernels.wire import HARD, I64_MAX, digit_at, is_word
from suiro.protocol.compiling import inlined
from suiro.protocol.kernel_numbers import put_varlong

_FLOAT_INFINITY = np.frombuffer(b"Infinity", np.uint8)
_NAN = np.frombuffer(b"NaN", np.uint8)


def _powers_of_five() -> Any:
    """5**q for q from -342 to 308, the 128 highest bits of each, high word then low: the table of Eisel and Lemire."""
    words = []
    for q in range(-342, 309):
        if q < 0:
            power = 5**-q
            bits = (power - 1).bit_length()
            shift = bits + 127 if q >= -27 else 2 * bits + 128
            number = (1 << shift) // power + 1
        else:
            number = 5**q
            number <<= max(0, 128 - number.bit_length())
        number >>= max(0, number.bit_length() - 128)
        words += [number >> 64, number & 0xFFFFFFFFFFFFFFFF]
    return np.array(words, np.uint64)


_POWERS = _powers_of_five()


@inlined
def put_integer(out, to, data, at, size, low, high):
    end = at + size
    negative = size > 0 and data[at] == 45
    if negative:
        at += 1
    if end - at < 1 or end - at > 19:
        return np.int64(HARD)
    number = np.uint64(0)
    while at < end:
        digit = digit_at(data, at)
        if digit > 9:
            return np.int64(HARD)
        number = number * np.uint64(10) + np.uint64(digit)
        at += 1
    if number > np.uint64(I64_MAX):
        return np.int64(HARD)  # -2**63 among them
    value = np.int64(number)
    if negative:
        value = -value
    if value < low or value > high:
        return np.int64(HARD)
    return put_varlong(out, to, value)


@inlined
def bit_length(number):
    """Returns the number of bits up to the highest that is set."""
    bits = np.int64(0)
    if number >= np.uint64(1 << 32):
        bits += 32
        number >>= np.uint64(32)
    if number >= np.uint64(1 << 16):
        bits += 16
        number >>= np.uint64(16)
    if number >= np.uint64(1 << 8):
        bits += 8
        number >>= np.uint64(8)
    while number > np.uint64(0):
        bits += 1
        number >>= np.uint64(1)
    return bits


@inlined
def _product(a, b):
    """(high, low) of the product of two words."""
    mask = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a_low = a & mask
    a_high = a >> half
    b_low = b & mask
    b_high = b >> half
    low = a_low * b_low
    middle = a_high * b_low + (low >> half)
    other = a_low * b_high + (middle & mask)
    high = a_high * b_high + (middle >> half) + (other >> half)
    return high, (other << half) | (low & mask)


@inlined
def _read_digits(data, at, end, number, digits):
    """(the number with the digits that follow it, how many digits from the first that is not zero, the place after)"""
    while at < end and digit_at(data, at) <= 9:
        digit = digit_at(data, at)
        number = number * np.uint64(10) + np.uint64(digit)
        if digits > 0 or digit > 0:
            digits += 1
        at += 1
    return number, digits, at


@inlined
def _float_bits(data, at, size):
    """Returns (bits of the double nearest to the text, whether it could be computed), by the algorithm of Eisel and
    Lemire. Subnormal and huge numbers, and those of more than 19 digits, are left to the plain rule."""
    end = at + size
    sign = np.uint64(0)
    if size > 0 and data[at] == 45:
        sign = np.uint64(1) << np.uint64(63)
        at += 1
    if sign == np.uint64(0) and is_word(data, at, end - at, _NAN):
        return np.uint64(0x7FF8000000000000), True
    if is_word(data, at, end - at, _FLOAT_INFINITY):
        return sign | np.uint64(0x7FF0000000000000), True
    number = np.uint64(0)
    digits = np.int64(0)
    exponent = np.int64(0)
    start = at
    number, digits, at = _read_digits(data, at, end, number, digits)
    if at == start or digits > 19:
        return np.uint64(0), False
    if at < end and data[at] == 46:
        start = at + 1
        number, digits, at = _read_digits(data, start, end, number, digits)
        exponent = start - at
        if at == start or digits > 19:
            return np.uint64(0), False
    if at < end and data[at] == 101:
        at += 1
        negative = False
        if at < end and (data[at] == 43 or data[at] == 45):
            negative = data[at] == 45
            at += 1
        power = np.int64(0)
        start = at
        while at < end and at - start < 5 and digit_at(data, at) <= 9:
            power = power * 10 + digit_at(data, at)
            at += 1
        if at == start:
            return np.uint64(0), False
        exponent += -power if negative else power
    if at != end:
        return np.uint64(0), False
    if number == np.uint64(0):
        return sign, True
    if exponent < -342 or exponent > 308:
        return np.uint64(0), False
    shift = 64 - bit_length(number)
    number <<= np.uint64(shift)
    index = 2 * (exponent + 342)
    high, low = _product(number, _POWERS[index])
    if (high & np.uint64(0x1FF)) == np.uint64(0x1FF):
        more, _ = _product(number, _POWERS[index + 1])
        low += more
        if more > low:
            high += np.uint64(1)
    upper = np.int64(high >> np.uint64(63))
    mantissa = high >> np.uint64(upper + 9)
    power_of_two = ((217_706 * exponent) >> 16) + 63 + upper - shift + 1023
    if power_of_two <= 0:
        return np.uint64(0), False
    if (
        low <= np.uint64(1)
        and exponent >= -4
        and exponent <= 23
        and (mantissa & np.uint64(3)) == np.uint64(1)
        and (mantissa << np.uint64(upper + 9)) == high
    ):
        mantissa &= ~np.uint64(1)  # half way between two doubles: to the even one
    mantissa += mantissa & np.uint64(1)
    mantissa >>= np.uint64(1)
    if mantissa >= np.uint64(1 << 53):
        mantissa = np.uint64(1 << 52)
        power_of_two += 1
    if power_of_two >= 0x7FF:
        return np.uint64(0), False
    mantissa &= ~np.uint64(1 << 52)
    return sign | (np.uint64(power_of_two) << np.uint64(52)) | mantissa, True


@inlined
def put_float8(out, to, data, at, size):
    bits, done = _float_bits(data, at, size)
    if not done:
        return np.int64(HARD)
    for byte in range(8):
        out[to + byte] = np.uint8((bits >> np.uint64(8 * byte)) & np.uint64(0xFF))
    return to + 8


@inlined
def put_float4(out, to, data, at, size):
    """Converts by way of a double. A number that may be rounded twice (half way between two floats) is hard."""
    bits, done = _float_bits(data, at, size)
    if not done:
        return np.int64(HARD)
    narrow = (bits >> np.uint64(32)) & np.uint64(0x80000000)
    power = np.int64((bits >> np.uint64(52)) & np.uint64(0x7FF))
    mantissa = bits & np.uint64((1 << 52) - 1)
    if power == 0x7FF:
        narrow |= np.uint64(0x7F800000) | (mantissa >> np.uint64(29))
    elif power > 0:
        power += 127 - 1023
        rest = mantissa & np.uint64((1 << 29) - 1)
        mantissa >>= np.uint64(29)
        if power <= 0 or rest == np.uint64(1 << 28):
            return np.int64(HARD)
        if rest > np.uint64(1 << 28):
            mantissa += np.uint64(1)
            if mantissa == np.uint64(1 << 23):
                mantissa = np.uint64(0)
                power += 1
        if power >= 0xFF:
            return np.int64(HARD)
        narrow |= (np.uint64(power) << np.uint64(23)) | mantissa
    for byte in range(4):
        out[to + byte] = np.uint8((narrow >> np.uint64(8 * byte)) & np.uint64(0xFF))
    return to + 4


@inlined
def put_decimal(out, to, data, at, size, precision, scale, limbs):
    end = at + size
    negative = size > 0 and data[at] == 45
    if negative:
        at += 1
    digits = np.int64(0)  # from the first that is not zero
    behind = np.int64(-1)  # digits behind the point
    count = np.int64(1)  # limbs in use
    limbs[0] = 0
    chunk = np.uint64(0)
    worth = np.uint64(1)
    start = at
    place = at
    padding = np.int64(0)
    while place < end or padding > 0:
        if place < end:
            digit = digit_at(data, place)
            place += 1
            if digit > 9:
                if data[place - 1] != 46 or behind >= 0 or place - 1 == start or place == end:
                    return np.int64(HARD)
                behind = np.int64(0)
                if place < end:
                    continue
            elif behind >= 0:
                behind += 1
        else:
            digit = np.int64(0)
            padding -= 1
        if digits > 0 or digit > 0:
            digits += 1
        chunk = chunk * np.uint64(10) + np.uint64(digit)
        worth *= np.uint64(10)
        if place == end and padding == 0 and digits <= precision and behind < scale:
            padding = scale - max(behind, np.int64(0))
            behind = scale
        if worth == np.uint64(1_000_000_000) or (place == end and padding == 0):
            if digits > precision:
                return np.int64(HARD)
            carry = chunk
            for limb in range(count):
                carry += limbs[limb] * worth
                limbs[limb] = carry & np.uint64(0xFFFFFFFF)
                carry >>= np.uint64(32)
            if carry > np.uint64(0):
                limbs[count] = carry
                count += 1
            chunk = np.uint64(0)
            worth = np.uint64(1)
    if place == start or digits > precision or behind > scale:
        return np.int64(HARD)
    if negative and digits > 0:  # two's complement is the complement of the number less one
        limb = 0
        while limbs[limb] == np.uint64(0):
            limbs[limb] = np.uint64(0xFFFFFFFF)
            limb += 1
        limbs[limb] -= np.uint64(1)
    flip = np.uint64(0xFF) if negative and digits > 0 else np.uint64(0)
    while count > 1 and limbs[count - 1] == np.uint64(0):
        count -= 1
    length = ((count - 1) * 32 + bit_length(limbs[count - 1])) // 8 + 1
    to = put_varlong(out, to, length)
    for byte in range(length - 1, -1, -1):
        limb = byte >> 2
        word = limbs[limb] if limb < count else np.uint64(0)
        out[to] = np.uint8(((word >> np.uint64(8 * (byte & 3))) & np.uint64(0xFF)) ^ flip)
        to += 1
    return to
