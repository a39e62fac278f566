"""One value to Avro, from text or from COPY's binary format, by the code of its column. Numbers: see `numbers`."""

from __future__ import annotations

import numpy as np

from suiro.connect.postgres.encoding.kernels.numbers import put_decimal, put_float4, put_float8, put_integer
from suiro.connect.postgres.encoding.kernels.wire import (
    DAY,
    EPOCH_DAYS,
    EPOCH_MICROS,
    HARD,
    I32_MAX,
    I64_MAX,
    digit_at,
    is_word,
    two_digits_at,
    uint16_at,
    uint32_at,
)
from suiro.protocol.compiling import copy_bytes, inlined
from suiro.protocol.kernel_numbers import int32_at, int64_at, put_varlong

# How a value is written: from text, then from COPY's binary form.
CODES = (
    "python", "string", "integer", "float8", "float4", "bool", "bytea", "date", "time", "timestamp", "timestamptz",
    "decimal",
    "binary_int2", "binary_int4", "binary_int8", "binary_uint4", "binary_float4", "binary_float8", "binary_bool",
    "binary_date", "binary_timestamp", "binary_uuid",
)  # fmt: skip
(
    PYTHON, STRING, INTEGER, FLOAT8, FLOAT4, BOOL, BYTEA, DATE, TIMEOFDAY, TIMESTAMP, TIMESTAMPTZ,
    DECIMAL,
    BINARY_INT2, BINARY_INT4, BINARY_INT8, BINARY_UINT4, BINARY_FLOAT4, BINARY_FLOAT8, BINARY_BOOL,
    BINARY_DATE, BINARY_TIMESTAMP, BINARY_UUID,
) = range(len(CODES))  # fmt: skip
_SIZES = np.array([2, 4, 8, 4, 4, 8, 1, 4, 8, 16], np.int64)  # of the binary forms

MAX_DECIMAL_DIGITS = 2000
MAX_GROWTH = 48
"""A value's Avro bytes, with its length and the branch of its union, are at most this longer than the value itself: a
date of eight characters has ten, a UUID of sixteen bytes thirty-eight. Decimals are an exception."""

_INFINITY = np.frombuffer(b"infinity", np.uint8)
_MAX_DAYS = 106_751_980  # of microseconds in 64 bits, some days left aside


@inlined
def _word(data, at, size):
    """1 for infinity, -1 for -infinity, 0 for neither (dates and timestamps)."""
    if is_word(data, at, size, _INFINITY):
        return np.int64(1)
    if size == 9 and data[at] == 45 and is_word(data, at + 1, size - 1, _INFINITY):
        return np.int64(-1)
    return np.int64(0)


@inlined
def _days(data, at, end):
    """(days since 1970, place after the date); the place is -1 where there is none. " BC" counts at the end."""
    year = np.int64(0)
    digits = 0
    while at < end and digits < 7:
        digit = digit_at(data, at)
        if digit > 9:
            break
        year = year * 10 + digit
        digits += 1
        at += 1
    if digits < 4 or end - at < 6 or data[at] != 45 or data[at + 3] != 45:
        return np.int64(0), np.int64(-1)
    month = two_digits_at(data, at + 1)
    day = two_digits_at(data, at + 4)
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
    hours = two_digits_at(data, at)
    minutes = two_digits_at(data, at + 3)
    seconds = two_digits_at(data, at + 6)
    if hours > 99 or minutes > 99 or seconds > 99:
        return np.int64(0), np.int64(-1)
    value = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    at += 8
    if at < end and data[at] == 46:
        at += 1
        worth = np.int64(100_000)
        digits = 0
        while at < end and digits < 6:
            digit = digit_at(data, at)
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
def put_date(out, to, data, at, size):
    word = _word(data, at, size)
    if word != 0:
        return put_varlong(out, to, np.int64(I32_MAX) if word > 0 else np.int64(-I32_MAX - 1))
    end = at + size
    days, at = _days(data, at, end)
    if at < 0 or not _is_end(data, at, end):
        return np.int64(HARD)
    return put_varlong(out, to, days)


@inlined
def put_time(out, to, data, at, size):
    end = at + size
    value, at = _micros(data, at, end)
    if at != end or value > DAY:
        return np.int64(HARD)
    return put_varlong(out, to, value)


@inlined
def put_timestamp(out, to, data, at, size, zoned):
    word = _word(data, at, size)
    if word != 0:
        return put_varlong(out, to, np.int64(I64_MAX) if word > 0 else np.int64(-I64_MAX - 1))
    end = at + size
    days, at = _days(data, at, end)
    if at < 0 or at >= end or data[at] != 32 or days > _MAX_DAYS or days < -_MAX_DAYS:
        return np.int64(HARD)
    value, at = _micros(data, at + 1, end)
    if at < 0:
        return np.int64(HARD)
    if zoned:
        if end - at < 3 or (data[at] != 43 and data[at] != 45):
            return np.int64(HARD)
        sign = np.int64(-1) if data[at] == 43 else np.int64(1)
        hours = two_digits_at(data, at + 1)
        minutes = np.int64(0)
        seconds = np.int64(0)
        at += 3
        if end - at >= 3 and data[at] == 58:
            minutes = two_digits_at(data, at + 1)
            at += 3
            if end - at >= 3 and data[at] == 58:
                seconds = two_digits_at(data, at + 1)
                at += 3
        if hours > 99 or minutes > 99 or seconds > 99:
            return np.int64(HARD)
        value += sign * (hours * 3600 + minutes * 60 + seconds) * 1_000_000
    if not _is_end(data, at, end):
        return np.int64(HARD)
    return put_varlong(out, to, days * DAY + value)


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
def put_bytea(out, to, data, at, size):
    if size < 2 or size & 1 or data[at] != 92 or data[at + 1] != 120:
        return np.int64(HARD)
    count = (size - 2) >> 1
    to = put_varlong(out, to, count)
    at += 2
    wrong = np.int64(0)
    for place in range(count):
        byte = (_nibble(data[at + 2 * place]) << 4) | _nibble(data[at + 2 * place + 1])
        wrong |= byte
        out[to + place] = np.uint8(byte & 0xFF)
    if wrong > 0xFF:
        return np.int64(HARD)
    return to + count


@inlined
def _put_text(out, to, data, at, size):
    to = put_varlong(out, to, size)
    copy_bytes(out, to, data, at, size)
    return to + size


@inlined
def _hex_digit(nibble):
    return np.uint8(nibble + 48 if nibble < 10 else nibble + 87)


@inlined
def _is_nan(data, at, width):
    if width == 4:
        return (uint32_at(data, at) & 0x7FFFFFFF) > 0x7F800000
    return (int64_at(data, at) & I64_MAX) > 0x7FF0000000000000


@inlined
def _put_binary(out, to, data, at, size, code):
    """Writes a value in COPY's binary form. Its size must be that of its type."""
    if size != _SIZES[code - BINARY_INT2]:
        return np.int64(HARD)
    if code == BINARY_INT4:
        return put_varlong(out, to, int32_at(data, at))
    if code == BINARY_INT8:
        return put_varlong(out, to, int64_at(data, at))
    if code == BINARY_INT2:
        return put_varlong(out, to, np.int64(np.int16(np.uint16(uint16_at(data, at)))))
    if code == BINARY_UINT4:
        return put_varlong(out, to, uint32_at(data, at))
    if code in (BINARY_FLOAT8, BINARY_FLOAT4):
        for byte in range(size):
            out[to + byte] = data[at + size - 1 - byte]
        if _is_nan(data, at, size):  # every NaN is written like its text
            for byte in range(size - 2):
                out[to + byte] = 0
            out[to + size - 2] = 0xF8 if size == 8 else 0xC0
            out[to + size - 1] = 0x7F
        return to + size
    if code == BINARY_BOOL:
        out[to] = np.uint8(1 if data[at] != 0 else 0)
        return to + 1
    if code == BINARY_TIMESTAMP:
        value = int64_at(data, at)
        if value != I64_MAX and value != -I64_MAX - 1:
            if value >= I64_MAX - EPOCH_MICROS:
                return np.int64(HARD)
            value += EPOCH_MICROS
        return put_varlong(out, to, value)
    if code == BINARY_DATE:
        value = int32_at(data, at)
        if value != I32_MAX and value != -I32_MAX - 1:
            value += EPOCH_DAYS
        return put_varlong(out, to, value)
    to = put_varlong(out, to, np.int64(36))  # BINARY_UUID
    for byte in range(16):
        if byte == 4 or byte == 6 or byte == 8 or byte == 10:
            out[to] = 45
            to += 1
        out[to] = _hex_digit(data[at + byte] >> 4)
        out[to + 1] = _hex_digit(data[at + byte] & 15)
        to += 2
    return to


@inlined
def put_value(out, to, data, at, size, code, first, second, limbs):
    """Writes a value that is not null. Returns the place after it, or -1 if it is hard. The caller has made room."""
    if code == STRING:
        return _put_text(out, to, data, at, size)
    if code == INTEGER:
        return put_integer(out, to, data, at, size, first, second)
    if code >= BINARY_INT2:
        return _put_binary(out, to, data, at, size, code)
    if code in (TIMESTAMP, TIMESTAMPTZ):
        return put_timestamp(out, to, data, at, size, code == TIMESTAMPTZ)
    if code == DECIMAL:
        return put_decimal(out, to, data, at, size, first, second, limbs)
    if code == FLOAT8:
        return put_float8(out, to, data, at, size)
    if code == FLOAT4:
        return put_float4(out, to, data, at, size)
    if code == DATE:
        return put_date(out, to, data, at, size)
    if code == TIMEOFDAY:
        return put_time(out, to, data, at, size)
    if code == BYTEA:
        return put_bytea(out, to, data, at, size)
    if code == BOOL and size == 1 and (data[at] == 116 or data[at] == 102):
        out[to] = np.uint8(1 if data[at] == 116 else 0)
        return to + 1
    return np.int64(HARD)
