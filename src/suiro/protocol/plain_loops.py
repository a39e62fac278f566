"""Loops over the records of a batch in plain Python, if the compiled ones of `kernels` are not installed.

Always true: they find and refuse the same as the kernels of the same names, and make no object of a record.
"""

from __future__ import annotations

from typing import NamedTuple

from suiro.errors import CorruptRecordError
from suiro.protocol.crc32c import BytesLike
from suiro.protocol.record_batch import MIN_RECORD_SIZE

_LONGEST_START = 5 + 1 + 10 + 5 + 5 + 5 + 5  # all of a record but key, value and headers


class Found(NamedTuple):
    """How far a look into a part of a batch came; `at` is behind its end where a record goes on in the next part."""

    left: int
    at: int
    offset: int | None = None
    timestamp: int = 0


def find_by_time(
    data: bytes,
    is_last: bool,
    left: int,
    base_offset: int,
    base_timestamp: int,
    timestamp: int,
    from_offset: int,
) -> Found:
    """Go over `left` records, as far as they begin in this part, until one is late enough.

    Raises `CorruptRecordError`.
    """
    size_of_part = len(data)
    at = 0
    while left > 0 and at < size_of_part:
        if size_of_part - at < _LONGEST_START and not is_last:
            break
        size, place = varlong(data, at, size_of_part, 32)
        if place < 0 or size < MIN_RECORD_SIZE - 1:
            raise _none()
        end = place + size
        timestamp_delta, place = varlong(data, place + 1, size_of_part)
        if place < 0:
            raise _none()
        offset_delta, place = varlong(data, place, size_of_part, 32)
        if place < 0 or place > end:
            raise _none()
        left -= 1
        at = end
        its_timestamp, offset = int64(base_timestamp + timestamp_delta), int64(base_offset + offset_delta)
        if its_timestamp >= timestamp and offset >= from_offset:
            return Found(left, at, offset, its_timestamp)
    return Found(left, at)


def varlong(data: BytesLike, at: int, end: int, bits: int = 64) -> tuple[int, int]:
    """(value, next place) of a zigzag number; the place is -1 where it is torn or has more bits."""
    value = shift = 0
    while at < end and shift < bits:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << bits) - 1
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    return 0, -1


def int64(value: int) -> int:
    """Wraps a sum of two 64-bit numbers that does not fit into 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _none() -> CorruptRecordError:
    return CorruptRecordError("bytes that are no records")
