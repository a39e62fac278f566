"""Finds the first record of a batch at or after a timestamp, without an object for each record.

A client's batch may hold millions of records in a few kilobytes, and its header may promise a timestamp that none of
them has. So its records are decompressed part by part, and many are searched by a compiled loop, without the GIL. It
takes a second to load, so few records are searched by a loop in plain Python, and all are if it is not installed. Both
find and refuse the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from suiro.errors import CorruptRecordError
from suiro.extras import is_installed
from suiro.protocol.compression import decompressed_parts
from suiro.protocol.crc32c import BytesLike
from suiro.protocol.fields import int64, varlong
from suiro.protocol.record_batch import HEADER_SIZE, MIN_RECORD_SIZE, read_header

_FEW_RECORDS = 1000
_EARLIEST = -(1 << 63)
_LONGEST_START = 5 + 1 + 10 + 5 + 5 + 5 + 5  # all of a record but key, value and headers
_NO_RECORDS = "bytes that are no records"


class _Found(NamedTuple):
    """How far a look into a part of a batch came; `at` is behind its end where a record goes on in the next part."""

    left: int
    at: int
    offset: int | None = None
    timestamp: int = 0


_Find: TypeAlias = Callable[[bytes, bool, int, int, int, int, int], _Found]
"""Goes over records, as far as they begin in this part, until one is late enough. Raises `CorruptRecordError`."""


def first_at_or_after(
    batch: BytesLike, timestamp: int, *, from_offset: int, compiled: bool | None = None
) -> tuple[int, int] | None:
    """Returns (offset, timestamp) of the batch's first record at least this late, from an offset on.

    Raises `CorruptRecordError`.
    """
    header = read_header(batch)
    if compiled is None:
        compiled = header.count > _FEW_RECORDS and is_installed("numpy", "numba")
    find: _Find = _find_compiled if compiled else _find_plain
    left, rest, skipped = header.count, b"", 0
    wanted = _EARLIEST if header.is_log_append_time else timestamp

    def look(data: bytes, *, is_last: bool) -> _Found:
        try:
            return find(data, is_last, left, header.base_offset, header.base_timestamp, wanted, from_offset)
        except CorruptRecordError as error:
            raise CorruptRecordError(f"the batch at offset {header.base_offset} holds {error}") from None

    found = _Found(left, 0)
    for part in decompressed_parts(header.compression, memoryview(batch)[HEADER_SIZE : header.size]):
        if skipped >= len(part):
            skipped -= len(part)
            continue
        data = rest + part[skipped:]
        found = look(data, is_last=False)
        left = found.left
        if found.offset is not None:
            break
        rest, skipped = data[found.at :], max(0, found.at - len(data))
    else:
        if skipped == 0 and rest:
            found = look(rest, is_last=True)
            left, skipped = found.left, max(0, found.at - len(rest))
        if found.offset is None and (skipped or left):
            raise CorruptRecordError(
                f"the batch at offset {header.base_offset} claims {header.count} records and ends before them"
            )
    if found.offset is None:
        return None
    return found.offset, header.max_timestamp if header.is_log_append_time else found.timestamp


def _find_plain(
    data: bytes,
    is_last: bool,
    left: int,
    base_offset: int,
    base_timestamp: int,
    timestamp: int,
    from_offset: int,
) -> _Found:
    size_of_part = len(data)
    at = 0
    while left > 0 and at < size_of_part:
        if size_of_part - at < _LONGEST_START and not is_last:
            break
        size, place = varlong(data, at, size_of_part, 32)
        if place < 0 or size < MIN_RECORD_SIZE - 1:
            raise CorruptRecordError(_NO_RECORDS)
        end = place + size
        timestamp_delta, place = varlong(data, place + 1, size_of_part)
        if place < 0:
            raise CorruptRecordError(_NO_RECORDS)
        offset_delta, place = varlong(data, place, size_of_part, 32)
        if place < 0 or place > end:
            raise CorruptRecordError(_NO_RECORDS)
        left -= 1
        at = end
        its_timestamp, offset = int64(base_timestamp + timestamp_delta), int64(base_offset + offset_delta)
        if its_timestamp >= timestamp and offset >= from_offset:
            return _Found(left, at, offset, its_timestamp)
    return _Found(left, at)


def _find_compiled(
    data: bytes,
    is_last: bool,
    left: int,
    base_offset: int,
    base_timestamp: int,
    timestamp: int,
    from_offset: int,
) -> _Found:
    import numpy as np

    from suiro.protocol import kernels

    result = np.zeros(6, np.int64)
    kernels.find_by_time(
        np.frombuffer(data, np.uint8),
        is_last,
        left,
        base_offset,
        base_timestamp,
        timestamp,
        from_offset,
        result,
    )
    status, is_found, left, at, offset, its_timestamp = result.tolist()
    if status != kernels.OK:
        raise CorruptRecordError(_NO_RECORDS)
    return _Found(left, at, offset if is_found else None, its_timestamp)
