"""The compiled loops of `pgoutput`, `copy_binary` and `avro_rows`: no Python object per value.

What is always true: no kernel reads or writes outside the arrays it is given, whatever the bytes say. A kernel
never judges a value: what it does not know how to write it lists as hard, and the plain rule of `avro_text` writes
it or says what is wrong with it. So the plain rules are the law, and a kernel can only be faster.

As in `protocol.kernels`, every signature is written out, so that nothing compiles in the middle of a stream, and all
kernels stay in this one file, because numba's cache sees changes in the file of a kernel only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from suiro.protocol.compiling import (
    BYTES_IN,
    BYTES_OUT,
    INT,
    INT32S_OUT,
    INT64S_IN,
    INT64S_OUT,
    TABLE_OUT,
    compiled,
    copy_bytes,
    inlined,
)

# Rows of the table of facts: as in `pgoutput`.
KIND, TRANSACTION, XID, RELATION, LSN, END_LSN, TIME, OLD_KIND, OLD_AT, NEW_AT, UNCHANGED, STREAMED = range(
    12
)

# Statuses.
OK, BAD_ROW, FULL = range(3)

# How a value is written: first from text, then from COPY's binary form.
CODES = (
    "python",
    "string",
    "integer",
    "float8",
    "float4",
    "bool",
    "bytea",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "decimal",
    "binary_int2",
    "binary_int4",
    "binary_int8",
    "binary_uint4",
    "binary_float4",
    "binary_float8",
    "binary_bool",
    "binary_date",
    "binary_timestamp",
    "binary_uuid",
)
(
    PYTHON,
    STRING,
    INTEGER,
    FLOAT8,
    FLOAT4,
    BOOL,
    BYTEA,
    DATE,
    TIMEOFDAY,
    TIMESTAMP,
    TIMESTAMPTZ,
    DECIMAL,
    BINARY_INT2,
    BINARY_INT4,
    BINARY_INT8,
    BINARY_UINT4,
    BINARY_FLOAT4,
    BINARY_FLOAT8,
    BINARY_BOOL,
    BINARY_DATE,
    BINARY_TIMESTAMP,
    BINARY_UUID,
) = range(len(CODES))

MAX_DECIMAL_DIGITS = 2000
MAX_GROWTH = 48
"""A value's Avro bytes are at most this longer than its own, its union's branch and its length included, decimals
apart: a date of eight characters gives ten, a UUID of sixteen bytes thirty-eight."""

_NULL, _UNCHANGED = -1, -2
_HARD = -1
_INFINITY = np.frombuffer(b"infinity", np.uint8)
_FLOAT_INFINITY = np.frombuffer(b"Infinity", np.uint8)
_NAN = np.frombuffer(b"NaN", np.uint8)
_EPOCH_DAYS = 10_957
_EPOCH_MICROS = 946_684_800_000_000
_DAY = 86_400_000_000
_I64_MAX = (1 << 63) - 1
_I32_MAX = (1 << 31) - 1
_MAX_DAYS = 106_751_980  # of microseconds in 64 bits, some days left aside

_bools_out = types.Array(types.boolean, 1, "C")
_uint64s_in = types.Array(types.uint64, 1, "C", readonly=True)
_bool = types.boolean


def powers_of_five() -> Any:
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
    table = np.array(words, np.uint64)
    table.flags.writeable = False
    return table


# --- numbers of the wire ------------------------------------------------------------------------------------


@inlined
def _uint16_at(data, at):
    return (np.int64(data[at]) << 8) | np.int64(data[at + 1])


@inlined
def _uint32_at(data, at):
    return (
        (np.int64(data[at]) << 24)
        | (np.int64(data[at + 1]) << 16)
        | (np.int64(data[at + 2]) << 8)
        | np.int64(data[at + 3])
    )


@inlined
def _int32_at(data, at):
    return np.int64(np.int32(np.uint32(_uint32_at(data, at))))


@inlined
def _int64_at(data, at):
    return (_int32_at(data, at) << 32) | _uint32_at(data, at + 4)


@inlined
def _put_long(out, at, value):
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest >= np.uint64(0x80):
        out[at] = np.uint8((rest & np.uint64(0x7F)) | np.uint64(0x80))
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


# --- pgoutput -----------------------------------------------------------------------------------------------


@inlined
def _skip_value(data, at, end):
    """(next place, what it is: its kind's byte); the place is -1 where the value is torn or of no kind."""
    if at >= end:
        return np.int64(-1), np.uint8(0)
    kind = data[at]
    at += 1
    if kind == 110 or kind == 117:  # n, u
        return at, kind
    if kind != 116 or end - at < 4:  # t
        return np.int64(-1), kind
    size = _int32_at(data, at)
    at += 4
    if size < 0 or size > end - at:
        return np.int64(-1), kind
    return at + size, kind


@compiled(BYTES_IN, INT64S_IN, INT64S_IN, TABLE_OUT, INT64S_OUT)
def parse(data, starts, ends, facts, state):
    """Fill the table of facts, a column a message. state = the open transaction, whether a stream block is open.

    Returns -1, or the first message that is none; `state` is then as it was before that message.
    """
    given = np.zeros(65536, np.bool_)
    for index in range(len(starts)):
        at = starts[index]
        end = ends[index]
        if at < 0 or end > len(data) or end - at < 1:
            return index
        kind = data[at]
        at += 1
        facts[KIND, index] = kind
        facts[OLD_AT, index] = -1
        facts[NEW_AT, index] = -1
        facts[RELATION, index] = -1
        facts[TRANSACTION, index] = state[0]
        facts[XID, index] = state[0]
        is_change = kind == 73 or kind == 85 or kind == 68  # I, U, D
        is_other = kind == 82 or kind == 89 or kind == 84 or kind == 77  # R, Y, T, M
        if state[1] != 0 and (is_change or is_other):
            facts[STREAMED, index] = 1
            if end - at < 4:
                return index
            facts[XID, index] = _uint32_at(data, at)
            at += 4
        if is_change:
            if end - at < 5:
                return index
            facts[RELATION, index] = _uint32_at(data, at)
            mark = data[at + 4]
            at += 5
            old_count = np.int64(0)
            if (mark == 75 or mark == 79) and kind != 73:  # K, O
                facts[OLD_KIND, index] = mark
                facts[OLD_AT, index] = at
                if end - at < 2:
                    return index
                old_count = _uint16_at(data, at)
                at += 2
                for column in range(old_count):
                    at, value = _skip_value(data, at, end)
                    if at < 0:
                        return index
                    given[column] = value == 116
                if kind == 68:
                    if at != end:
                        return index
                    continue
                if at >= end:
                    return index
                mark = data[at]
                at += 1
            if mark != 78 or kind == 68 or end - at < 2:  # N
                return index
            facts[NEW_AT, index] = at
            count = _uint16_at(data, at)
            at += 2
            if old_count > 0 and old_count != count:
                return index
            unchanged = 0
            for column in range(count):
                at, value = _skip_value(data, at, end)
                if at < 0:
                    return index
                if value == 117 and not (old_count > 0 and given[column]):
                    unchanged += 1
            facts[UNCHANGED, index] = unchanged
            if at != end:
                return index
        elif is_other:
            if kind == 82:
                if end - at < 4:
                    return index
                facts[RELATION, index] = _uint32_at(data, at)
            elif kind == 77:
                if end - at < 9:
                    return index
                facts[LSN, index] = _int64_at(data, at + 1)
        elif kind == 66:  # B
            if end - at != 20:
                return index
            time = _int64_at(data, at + 8)
            if time > _I64_MAX - _EPOCH_MICROS:
                return index
            facts[LSN, index] = _int64_at(data, at)
            facts[TIME, index] = time + _EPOCH_MICROS
            state[0] = _uint32_at(data, at + 16)
            facts[TRANSACTION, index] = state[0]
            facts[XID, index] = state[0]
        elif kind == 67 or kind == 99:  # C, c
            if kind == 99:
                if end - at < 4:
                    return index
                facts[TRANSACTION, index] = _uint32_at(data, at)
                facts[XID, index] = facts[TRANSACTION, index]
                at += 4
            if end - at != 25:
                return index
            time = _int64_at(data, at + 17)
            if time > _I64_MAX - _EPOCH_MICROS:
                return index
            facts[LSN, index] = _int64_at(data, at + 1)
            facts[END_LSN, index] = _int64_at(data, at + 9)
            facts[TIME, index] = time + _EPOCH_MICROS
            state[0] = 0
        elif kind == 83:  # S
            if end - at != 5:
                return index
            state[0] = _uint32_at(data, at)
            state[1] = 1
            facts[TRANSACTION, index] = state[0]
            facts[XID, index] = state[0]
        elif kind == 69:  # E
            if at != end:
                return index
            state[0] = 0
            state[1] = 0
        elif kind == 65:  # A
            if end - at != 8:
                return index
            facts[TRANSACTION, index] = _uint32_at(data, at)
            facts[XID, index] = _uint32_at(data, at + 4)
        elif kind == 79:  # O
            if end - at < 9 or data[end - 1] != 0:
                return index
            facts[LSN, index] = _int64_at(data, at)
            for place in range(at + 8, end - 1):
                if data[place] == 0:
                    return index
        else:
            return index
    return -1


# --- COPY ---------------------------------------------------------------------------------------------------


@compiled(BYTES_IN, INT, INT, INT64S_OUT, INT64S_OUT)
def copy_rows(data, at, columns, starts, result):
    """Where the rows of COPY begin; each is checked. result = status, rows, the place after the last whole one."""
    rows = np.int64(0)
    size = np.int64(len(data))
    result[0] = BAD_ROW
    result[1] = 0
    while at < size:
        result[2] = at
        if size - at < 2:
            return
        count = _uint16_at(data, at)
        if count == 0xFFFF:
            if at + 2 != size:
                return
            break
        if count != columns or rows >= len(starts):
            return
        starts[rows] = at
        at += 2
        for _ in range(columns):
            if size - at < 4:
                return
            length = _int32_at(data, at)
            at += 4
            if length < -1 or length > size - at:
                return
            if length > 0:
                at += length
        rows += 1
        result[1] = rows
    result[0] = OK
    result[2] = at


@compiled(BYTES_IN, INT64S_IN, TABLE_OUT, TABLE_OUT)
def copy_fields(data, starts, places, sizes):
    """Where every value of the rows that `copy_rows` has checked stands; a size of -1 is null."""
    for row in range(len(starts)):
        at = starts[row] + 2
        for column in range(len(places)):
            length = _int32_at(data, at)
            at += 4
            places[column, row] = at
            sizes[column, row] = length
            if length > 0:
                at += length


# --- values -------------------------------------------------------------------------------------------------


@inlined
def _digit(data, at):
    """The digit that stands there, or a number above 9."""
    return np.int64(np.uint8(data[at] - np.uint8(48)))


@inlined
def _two_digits(data, at):
    tens = _digit(data, at)
    ones = _digit(data, at + 1)
    if tens > 9 or ones > 9:
        return np.int64(1000)
    return tens * 10 + ones


@inlined
def _put_integer(out, to, data, at, size, low, high):
    end = at + size
    negative = size > 0 and data[at] == 45
    if negative:
        at += 1
    if end - at < 1 or end - at > 19:
        return np.int64(_HARD)
    number = np.uint64(0)
    while at < end:
        digit = _digit(data, at)
        if digit > 9:
            return np.int64(_HARD)
        number = number * np.uint64(10) + np.uint64(digit)
        at += 1
    if number > np.uint64(_I64_MAX):
        return np.int64(_HARD)  # -2**63 among them
    value = np.int64(number)
    if negative:
        value = -value
    if value < low or value > high:
        return np.int64(_HARD)
    return _put_long(out, to, value)


@inlined
def _is_word(data, at, size, word):
    if size != len(word):
        return False
    same = True
    for place in range(len(word)):
        same &= data[at + place] == word[place]
    return same


@inlined
def _word(data, at, size):
    """1 for infinity, -1 for -infinity, 0 for neither (dates and timestamps)."""
    if _is_word(data, at, size, _INFINITY):
        return np.int64(1)
    if size == 9 and data[at] == 45 and _is_word(data, at + 1, size - 1, _INFINITY):
        return np.int64(-1)
    return np.int64(0)


@inlined
def _days(data, at, end):
    """(days since 1970, place after the date); the place is -1 where there is none. " BC" counts at the end."""
    year = np.int64(0)
    digits = 0
    while at < end and digits < 7:
        digit = _digit(data, at)
        if digit > 9:
            break
        year = year * 10 + digit
        digits += 1
        at += 1
    if digits < 4 or end - at < 6 or data[at] != 45 or data[at + 3] != 45:
        return np.int64(0), np.int64(-1)
    month = _two_digits(data, at + 1)
    day = _two_digits(data, at + 4)
    if month < 1 or month > 12 or day < 1 or day > 31:
        return np.int64(0), np.int64(-1)
    at += 6
    if end - at >= 3 and data[end - 1] == 67 and data[end - 2] == 66 and data[end - 3] == 32:
        year = 1 - year
    if month <= 2:
        year -= 1
        month += 9
    else:
        month -= 3
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * month + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468, at


@inlined
def _micros(data, at, end):
    """(microseconds of the day, place after the time); the place is -1 where there is none."""
    if end - at < 8 or data[at + 2] != 58 or data[at + 5] != 58:
        return np.int64(0), np.int64(-1)
    hours = _two_digits(data, at)
    minutes = _two_digits(data, at + 3)
    seconds = _two_digits(data, at + 6)
    if hours > 99 or minutes > 99 or seconds > 99:
        return np.int64(0), np.int64(-1)
    value = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    at += 8
    if at < end and data[at] == 46:
        at += 1
        worth = np.int64(100_000)
        digits = 0
        while at < end and digits < 6:
            digit = _digit(data, at)
            if digit > 9:
                break
            value += digit * worth
            worth //= 10
            digits += 1
            at += 1
        if digits == 0:
            return np.int64(0), np.int64(-1)
    return value, at


@inlined
def _is_end(data, at, end):
    return at == end or (end - at == 3 and data[at] == 32 and data[at + 1] == 66 and data[at + 2] == 67)


@inlined
def _put_date(out, to, data, at, size):
    word = _word(data, at, size)
    if word != 0:
        return _put_long(out, to, np.int64(_I32_MAX) if word > 0 else np.int64(-_I32_MAX - 1))
    end = at + size
    days, at = _days(data, at, end)
    if at < 0 or not _is_end(data, at, end):
        return np.int64(_HARD)
    return _put_long(out, to, days)


@inlined
def _put_time(out, to, data, at, size):
    end = at + size
    value, at = _micros(data, at, end)
    if at != end or value > _DAY:
        return np.int64(_HARD)
    return _put_long(out, to, value)


@inlined
def _put_timestamp(out, to, data, at, size, zoned):
    word = _word(data, at, size)
    if word != 0:
        return _put_long(out, to, np.int64(_I64_MAX) if word > 0 else np.int64(-_I64_MAX - 1))
    end = at + size
    days, at = _days(data, at, end)
    if at < 0 or at >= end or data[at] != 32 or days > _MAX_DAYS or days < -_MAX_DAYS:
        return np.int64(_HARD)
    value, at = _micros(data, at + 1, end)
    if at < 0:
        return np.int64(_HARD)
    if zoned:
        if end - at < 3 or (data[at] != 43 and data[at] != 45):
            return np.int64(_HARD)
        sign = np.int64(-1) if data[at] == 43 else np.int64(1)
        hours = _two_digits(data, at + 1)
        minutes = np.int64(0)
        seconds = np.int64(0)
        at += 3
        if end - at >= 3 and data[at] == 58:
            minutes = _two_digits(data, at + 1)
            at += 3
            if end - at >= 3 and data[at] == 58:
                seconds = _two_digits(data, at + 1)
                at += 3
        if hours > 99 or minutes > 99 or seconds > 99:
            return np.int64(_HARD)
        value += sign * (hours * 3600 + minutes * 60 + seconds) * 1_000_000
    if not _is_end(data, at, end):
        return np.int64(_HARD)
    return _put_long(out, to, days * _DAY + value)


@inlined
def _bits(number):
    """How many bits a number has, from its highest that is set."""
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
def _float_bits(data, at, size, powers):
    """(bits of the double nearest to the text, could it be done); the algorithm of Eisel and Lemire.

    Subnormal and huge numbers, and those of more than 19 digits, are left to the plain rule.
    """
    end = at + size
    sign = np.uint64(0)
    if size > 0 and data[at] == 45:
        sign = np.uint64(1) << np.uint64(63)
        at += 1
    if sign == np.uint64(0) and _is_word(data, at, end - at, _NAN):
        return np.uint64(0x7FF8000000000000), True
    if _is_word(data, at, end - at, _FLOAT_INFINITY):
        return sign | np.uint64(0x7FF0000000000000), True
    number = np.uint64(0)
    digits = np.int64(0)
    exponent = np.int64(0)
    start = at
    while at < end and _digit(data, at) <= 9:
        digit = _digit(data, at)
        number = number * np.uint64(10) + np.uint64(digit)
        if digits > 0 or digit > 0:
            digits += 1
        at += 1
    if at == start or digits > 19:
        return np.uint64(0), False
    if at < end and data[at] == 46:
        at += 1
        start = at
        while at < end and _digit(data, at) <= 9:
            digit = _digit(data, at)
            number = number * np.uint64(10) + np.uint64(digit)
            if digits > 0 or digit > 0:
                digits += 1
            exponent -= 1
            at += 1
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
        while at < end and at - start < 5 and _digit(data, at) <= 9:
            power = power * 10 + _digit(data, at)
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
    shift = 64 - _bits(number)
    number <<= np.uint64(shift)
    index = 2 * (exponent + 342)
    high, low = _product(number, powers[index])
    if (high & np.uint64(0x1FF)) == np.uint64(0x1FF):
        more, _ = _product(number, powers[index + 1])
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
def _put_float8(out, to, data, at, size, powers):
    bits, done = _float_bits(data, at, size, powers)
    if not done:
        return np.int64(_HARD)
    for byte in range(8):
        out[to + byte] = np.uint8((bits >> np.uint64(8 * byte)) & np.uint64(0xFF))
    return to + 8


@inlined
def _put_float4(out, to, data, at, size, powers):
    """By way of the double; a number that this could round twice (half way between two floats) is hard."""
    bits, done = _float_bits(data, at, size, powers)
    if not done:
        return np.int64(_HARD)
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
            return np.int64(_HARD)
        if rest > np.uint64(1 << 28):
            mantissa += np.uint64(1)
            if mantissa == np.uint64(1 << 23):
                mantissa = np.uint64(0)
                power += 1
        if power >= 0xFF:
            return np.int64(_HARD)
        narrow |= (np.uint64(power) << np.uint64(23)) | mantissa
    for byte in range(4):
        out[to + byte] = np.uint8((narrow >> np.uint64(8 * byte)) & np.uint64(0xFF))
    return to + 4


@inlined
def _nibble(byte):
    digit = np.int64(np.uint8(byte - np.uint8(48)))
    if digit <= 9:
        return digit
    letter = np.int64(np.uint8(byte - np.uint8(97)))
    if letter <= 5:
        return letter + 10
    return np.int64(1000)


@inlined
def _put_bytea(out, to, data, at, size):
    if size < 2 or size & 1 or data[at] != 92 or data[at + 1] != 120:
        return np.int64(_HARD)
    count = (size - 2) >> 1
    to = _put_long(out, to, count)
    at += 2
    wrong = np.int64(0)
    for place in range(count):
        byte = (_nibble(data[at + 2 * place]) << 4) | _nibble(data[at + 2 * place + 1])
        wrong |= byte
        out[to + place] = np.uint8(byte & 0xFF)
    if wrong > 0xFF:
        return np.int64(_HARD)
    return to + count


@inlined
def _put_decimal(out, to, data, at, size, precision, scale, limbs):
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
            digit = _digit(data, place)
            place += 1
            if digit > 9:
                if data[place - 1] != 46 or behind >= 0 or place - 1 == start or place == end:
                    return np.int64(_HARD)
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
                return np.int64(_HARD)
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
        return np.int64(_HARD)
    if negative and digits > 0:  # two's complement is the complement of the number less one
        limb = 0
        while limbs[limb] == np.uint64(0):
            limbs[limb] = np.uint64(0xFFFFFFFF)
            limb += 1
        limbs[limb] -= np.uint64(1)
    flip = np.uint64(0xFF) if negative and digits > 0 else np.uint64(0)
    while count > 1 and limbs[count - 1] == np.uint64(0):
        count -= 1
    length = ((count - 1) * 32 + _bits(limbs[count - 1])) // 8 + 1
    to = _put_long(out, to, length)
    for byte in range(length - 1, -1, -1):
        limb = byte >> 2
        word = limbs[limb] if limb < count else np.uint64(0)
        out[to] = np.uint8(((word >> np.uint64(8 * (byte & 3))) & np.uint64(0xFF)) ^ flip)
        to += 1
    return to


@inlined
def _put_text(out, to, data, at, size):
    to = _put_long(out, to, size)
    copy_bytes(out, to, data, at, size)
    return to + size


@inlined
def _hex_digit(nibble):
    return np.uint8(nibble + 48 if nibble < 10 else nibble + 87)


@inlined
def _put_binary(out, to, data, at, size, code):
    """A value in COPY's binary form; only of the size that its type has."""
    if code == BINARY_INT4:
        if size == 4:
            return _put_long(out, to, _int32_at(data, at))
    elif code == BINARY_INT8:
        if size == 8:
            return _put_long(out, to, _int64_at(data, at))
    elif code == BINARY_INT2:
        if size == 2:
            return _put_long(out, to, np.int64(np.int16(np.uint16(_uint16_at(data, at)))))
    elif code == BINARY_UINT4:
        if size == 4:
            return _put_long(out, to, _uint32_at(data, at))
    elif code in (BINARY_FLOAT8, BINARY_FLOAT4):
        width = 8 if code == BINARY_FLOAT8 else 4
        if size == width:
            for byte in range(width):
                out[to + byte] = data[at + width - 1 - byte]
            return to + width
    elif code == BINARY_BOOL:
        if size == 1:
            out[to] = np.uint8(1 if data[at] != 0 else 0)
            return to + 1
    elif code == BINARY_TIMESTAMP:
        if size == 8:
            value = _int64_at(data, at)
            if value != _I64_MAX and value != -_I64_MAX - 1:
                if value >= _I64_MAX - _EPOCH_MICROS:
                    return np.int64(_HARD)
                value += _EPOCH_MICROS
            return _put_long(out, to, value)
    elif code == BINARY_DATE:
        if size == 4:
            value = _int32_at(data, at)
            if value != _I32_MAX and value != -_I32_MAX - 1:
                value += _EPOCH_DAYS
            return _put_long(out, to, value)
    elif code == BINARY_UUID and size == 16:
        to = _put_long(out, to, np.int64(36))
        for byte in range(16):
            if byte == 4 or byte == 6 or byte == 8 or byte == 10:
                out[to] = 45
                to += 1
            out[to] = _hex_digit(data[at + byte] >> 4)
            out[to + 1] = _hex_digit(data[at + byte] & 15)
            to += 2
        return to
    return np.int64(_HARD)


@inlined
def _put_value(out, to, data, at, size, code, first, second, powers, limbs):
    """A value that is not null; the place after it, or -1: not done. The caller has made room."""
    if code == STRING:
        return _put_text(out, to, data, at, size)
    if code == INTEGER:
        return _put_integer(out, to, data, at, size, first, second)
    if code >= BINARY_INT2:
        return _put_binary(out, to, data, at, size, code)
    if code in (TIMESTAMP, TIMESTAMPTZ):
        return _put_timestamp(out, to, data, at, size, code == TIMESTAMPTZ)
    if code == DECIMAL:
        return _put_decimal(out, to, data, at, size, first, second, limbs)
    if code == FLOAT8:
        return _put_float8(out, to, data, at, size, powers)
    if code == FLOAT4:
        return _put_float4(out, to, data, at, size, powers)
    if code == DATE:
        return _put_date(out, to, data, at, size)
    if code == TIMEOFDAY:
        return _put_time(out, to, data, at, size)
    if code == BYTEA:
        return _put_bytea(out, to, data, at, size)
    if code == BOOL and size == 1 and (data[at] == 116 or data[at] == 102):
        out[to] = np.uint8(1 if data[at] == 116 else 0)
        return to + 1
    return np.int64(_HARD)


# --- rows ---------------------------------------------------------------------------------------------------


@inlined
def _find_values(data, at, end, binary, places, sizes):
    """Where the values of a tuple stand. False: it is torn, or has another number of columns."""
    if at < 0 or end > len(data) or end - at < 2 or _uint16_at(data, at) != len(places):
        return False
    at += 2
    for column in range(len(places)):
        if not binary:
            if at >= end:
                return False
            kind = data[at]
            at += 1
            if kind == 110:
                sizes[column] = _NULL
                continue
            if kind == 117:
                sizes[column] = _UNCHANGED
                continue
            if kind != 116:
                return False
        if end - at < 4:
            return False
        size = _int32_at(data, at)
        at += 4
        if size < 0:
            if size != -1 or not binary:
                return False
            sizes[column] = _NULL
            continue
        if size > end - at:
            return False
        places[column] = at
        sizes[column] = size
        at += size
    return True


@inlined
def _fill_from_old(places, sizes, old_places, old_sizes):
    for column in range(len(places)):
        if sizes[column] == _UNCHANGED and old_sizes[column] >= 0:
            places[column] = old_places[column]
            sizes[column] = old_sizes[column]


@compiled(BYTES_IN, INT64S_IN, INT64S_IN, INT64S_IN, _bool, INT, INT64S_IN, TABLE_OUT, TABLE_OUT)
def find_columns(data, old_at, new_at, ends, binary, columns, wanted, places, sizes):
    """Where the values of some columns stand: table rows 2 * k (old tuple) and 2 * k + 1 (new), for column wanted[k].

    A size below 0: null, untouched, or no such tuple. Returns -1, or the first row that is torn.
    """
    old_places = np.empty(columns, np.int64)
    old_sizes = np.empty(columns, np.int64)
    new_places = np.empty(columns, np.int64)
    new_sizes = np.empty(columns, np.int64)
    for row in range(len(new_at)):
        has_old = old_at[row] >= 0
        has_new = new_at[row] >= 0
        if has_old and not _find_values(data, old_at[row], ends[row], binary, old_places, old_sizes):
            return row
        if has_new:
            if not _find_values(data, new_at[row], ends[row], binary, new_places, new_sizes):
                return row
            if has_old:
                _fill_from_old(new_places, new_sizes, old_places, old_sizes)
        for k in range(len(wanted)):
            column = wanted[k]
            places[2 * k, row] = old_places[column] if has_old else 0
            sizes[2 * k, row] = old_sizes[column] if has_old else _NULL
            places[2 * k + 1, row] = new_places[column] if has_new else 0
            sizes[2 * k + 1, row] = new_sizes[column] if has_new else _NULL
    return -1


@inlined
def _patch_of(patches, code):
    """The position of the patch for a cell, or -1."""
    low = np.int64(0)
    high = np.int64(len(patches))
    while low < high:
        middle = (low + high) >> 1
        if patches[middle] < code:
            low = middle + 1
        else:
            high = middle
    if low < len(patches) and patches[low] == code:
        return low
    return np.int64(-1)


@inlined
def _note_hard(hard, result, cell):
    if result[4] < len(hard):
        hard[result[4]] = cell
    result[4] += 1


@inlined
def _put_cell(
    out,
    to,
    data,
    at,
    size,
    code,
    first,
    second,
    powers,
    limbs,
    patches,
    offsets,
    patch_data,
    cell,
    hard,
    result,
):
    """A value with the branch of its union; a hard one is listed, and nothing is written for it."""
    if size == _NULL:
        out[to] = 0
        return to + 1
    if len(patches) > 0 and (code == PYTHON or size == _UNCHANGED or result[5] > 0):
        patch = _patch_of(patches, cell)
        if patch >= 0:
            length = offsets[patch + 1] - offsets[patch]
            copy_bytes(out, to, patch_data, offsets[patch], length)
            return to + length
    if size >= 0:
        out[to] = 2
        after = _put_value(out, to + 1, data, at, size, code, first, second, powers, limbs)
        if after >= 0:
            return after
    _note_hard(hard, result, cell)
    return to


@compiled(
    BYTES_IN,
    INT64S_IN,
    INT64S_IN,
    INT64S_IN,
    _bool,
    INT64S_IN,
    INT64S_IN,
    INT64S_IN,
    INT64S_IN,
    INT64S_IN,
    _bool,
    BYTES_IN,
    BYTES_IN,
    INT64S_IN,
    INT64S_IN,
    BYTES_IN,
    _uint64s_in,
    INT64S_OUT,
    INT32S_OUT,
    BYTES_OUT,
    INT32S_OUT,
    BYTES_OUT,
    _bools_out,
    INT64S_OUT,
    INT64S_OUT,
)
def encode_rows(
    data,
    old_at,
    new_at,
    ends,
    binary,
    codes,
    firsts,
    seconds,
    rooms,
    key,
    nullable_key,
    key_header,
    value_header,
    patches,
    patch_offsets,
    patch_data,
    powers,
    sources,
    key_offsets,
    keys,
    value_offsets,
    values,
    tombstones,
    hard,
    result,
):
    """Keys and values of every row: a row's tuples stand at old_at and new_at (-1: none) and end before ends.

    codes, firsts, seconds: how each column is written. rooms: how many bytes more than its own a value may take.
    patches: cells that are given, as (row * 2 + is_new) * columns + column, rising; their bytes are
    patch_data[patch_offsets[i]:patch_offsets[i + 1]], the branch of the union included.
    result = status, the row that is bad, records, -, hard cells (of which `hard` lists as many as it holds), and,
    given by the caller, whether patches stand for values of compiled columns too.
    """
    columns = np.int64(len(codes))
    old_places = np.zeros(columns, np.int64)
    old_sizes = np.full(columns, _NULL, np.int64)
    places = np.zeros(columns, np.int64)
    sizes = np.empty(columns, np.int64)
    cells = np.empty(columns + 1, np.int64)
    limbs = np.zeros(256, np.uint64)
    records = np.int64(0)
    key_to = np.int64(0)
    to = np.int64(0)
    key_offsets[0] = 0
    value_offsets[0] = 0
    result[4] = 0
    for row in range(len(new_at)):
        result[0] = BAD_ROW
        result[1] = row
        has_old = old_at[row] >= 0
        if has_old and not _find_values(data, old_at[row], ends[row], binary, old_places, old_sizes):
            return
        old_key = key_to
        if has_old:
            if len(keys) - key_to < len(key_header):
                result[0] = FULL
                return
            copy_bytes(keys, key_to, key_header, np.int64(0), np.int64(len(key_header)))
            key_to += len(key_header)
            for k in range(len(key)):
                column = key[k]
                size = old_sizes[column]
                cell = row * 2 * columns + column
                if size < 0 and not nullable_key:
                    return
                room = rooms[column] + max(size, np.int64(0))
                if len(patches) > 0:
                    patch = _patch_of(patches, cell)
                    if patch >= 0:
                        room = max(room, patch_offsets[patch + 1] - patch_offsets[patch])
                if len(keys) - key_to < room:
                    result[0] = FULL
                    return
                before = key_to
                key_to = _put_cell(
                    keys, key_to, data, old_places[column], size, codes[column], firsts[column], seconds[column],
                    powers, limbs, patches, patch_offsets, patch_data, cell, hard, result,
                )  # fmt: skip
                if not nullable_key and key_to > before:
                    for place in range(before, key_to - 1):
                        keys[place] = keys[place + 1]
                    key_to -= 1
        if new_at[row] < 0:
            if not has_old:
                return
            sources[records] = row
            tombstones[records] = True
            records += 1
            key_offsets[records] = key_to
            value_offsets[records] = to
            continue
        if not _find_values(data, new_at[row], ends[row], binary, places, sizes):
            return
        if has_old:
            _fill_from_old(places, sizes, old_places, old_sizes)
        if len(values) - to < len(value_header):
            result[0] = FULL
            return
        copy_bytes(values, to, value_header, np.int64(0), np.int64(len(value_header)))
        to += len(value_header)
        for column in range(columns):
            size = sizes[column]
            cell = (row * 2 + 1) * columns + column
            room = rooms[column] + max(size, np.int64(0))
            if len(patches) > 0 and (codes[column] == PYTHON or size == _UNCHANGED or result[5] > 0):
                patch = _patch_of(patches, cell)
                if patch >= 0:
                    room = max(room, patch_offsets[patch + 1] - patch_offsets[patch])
            if len(values) - to < room:
                result[0] = FULL
                return
            cells[column] = to
            to = _put_cell(
                values, to, data, places[column], size, codes[column], firsts[column], seconds[column],
                powers, limbs, patches, patch_offsets, patch_data, cell, hard, result,
            )  # fmt: skip
        cells[columns] = to
        new_key = key_to
        room = np.int64(len(key_header))
        for k in range(len(key)):
            room += cells[key[k] + 1] - cells[key[k]]
        if len(keys) - key_to < room:
            result[0] = FULL
            return
        copy_bytes(keys, key_to, key_header, np.int64(0), np.int64(len(key_header)))
        key_to += len(key_header)
        for k in range(len(key)):
            start = cells[key[k]]
            length = cells[key[k] + 1] - start
            if not nullable_key and length > 0:
                if values[start] == 0:
                    return
                start += 1
                length -= 1
            copy_bytes(keys, key_to, values, start, length)
            key_to += length
        if has_old:
            same = key_to - new_key == new_key - old_key
            if same:
                for place in range(new_key - old_key):
                    if keys[old_key + place] != keys[new_key + place]:
                        same = False
                        break
            if same:
                key_to = new_key
            else:
                sources[records] = row
                tombstones[records] = True
                records += 1
                key_offsets[records] = new_key
                value_offsets[records] = cells[0] - len(value_header)
        sources[records] = row
        tombstones[records] = False
        records += 1
        key_offsets[records] = key_to
        value_offsets[records] = to
    result[0] = OK
    result[2] = records
