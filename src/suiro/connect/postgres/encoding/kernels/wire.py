"""Primitives of the kernels: numbers as Postgres sends them, Avro's numbers, and shared constants."""

from __future__ import annotations

import numpy as np

from suiro.protocol.compiling import inlined
from suiro.protocol.kernel_numbers import int32_at

# Statuses.
OK, BAD_ROW, FULL = range(3)

HARD = -1
"""Instead of the place where a value ends: the kernel cannot write it."""

# In place of a value's size.
NULL, UNCHANGED_TOAST = -1, -2

EPOCH_DAYS = 10_957
EPOCH_MICROS = 946_684_800_000_000
DAY = 86_400_000_000
I64_MAX = (1 << 63) - 1
I32_MAX = (1 << 31) - 1


@inlined
def uint16_at(data, at):
    return (np.int64(data[at]) << 8) | np.int64(data[at + 1])


@inlined
def uint32_at(data, at):
    return int32_at(data, at) & 0xFFFFFFFF


@inlined
def digit_at(data, at):
    """Returns the digit at this place, or a number above 9."""
    return np.int64(np.uint8(data[at] - np.uint8(48)))


@inlined
def two_digits_at(data, at):
    tens = digit_at(data, at)
    ones = digit_at(data, at + 1)
    if tens > 9 or ones > 9:
        return np.int64(1000)
    return tens * 10 + ones


@inlined
def is_word(data, at, size, word):
    if size != len(word):
        return False
    same = True
    for place in range(len(word)):
        same &= data[at + place] == word[place]
    return same
