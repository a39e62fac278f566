"""Dates, times and timestamps from text to Avro."""

from __future__ import annotations

import numpy as np

from suiro.connect.postgres.encoding.kernels.wire import (
    DAY,
    HARD,
    I32_MAX,
    I64_MAX,
    digit_at,
    is_word,
    two_digits_at,
)
from suiro.protocol.compiling import inlined
from suiro.protocol.kernel_numbers import put_varlong

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
