"""Finds the first record of a batch at or after a timestamp, without an object for each record.

A client's batch may hold millions of records in a few kilobytes, and its header may promise a timestamp that none of
them has. So its records are decompressed part by part and searched by a compiled loop, without the GIL. The loop takes
a second to load, so a batch that is small, compressed and decompressed, is searched without it. If it is not installed,
a loop in plain Python does the same.
"""

from __future__ import annotations

from collections.abc import Callable

from suiro.errors import CorruptRecordError
from suiro.extras import is_installed
from suiro.protocol import plain_loops
from suiro.protocol.compression import TooMuchError, decompressed_parts
from suiro.protocol.crc32c import BytesLike
from suiro.protocol.plain_loops import Found
from suiro.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header
from suiro.protocol.records import decode_batch

_FEW_RECORDS = 1000
_FEW_BYTES = 4 << 20
_EARLIEST = -(1 << 63)


def first_at_or_after(batch: BytesLike, timestamp: int, *, from_offset: int) -> tuple[int, int] | None:
    """Returns (offset, timestamp) of the batch's first record at least this late, from an offset on.

    Raises `CorruptRecordError`.
    """
    header = read_header(batch)
    if 0 <= header.count <= _FEW_RECORDS:
        try:
            for record in decode_batch(batch, limit=_FEW_BYTES):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return record.offset, record.timestamp
            return None
        except TooMuchError:
            pass
    find = _find_compiled if is_installed("numpy", "numba") else plain_loops.find_by_time
    return _found_in_parts(batch, header, timestamp, from_offset, find)


def _found_in_parts(
    batch: BytesLike,
    header: BatchHeader,
    timestamp: int,
    from_offset: int,
    find: Callable[[bytes, bool, int, int, int, int, int], Found],
) -> tuple[int, int] | None:
    left, rest, skipped = header.count, b"", 0
    wanted = _EARLIEST if header.is_log_append_time else timestamp

    def look(data: bytes, *, is_last: bool) -> Found:
        try:
            return find(data, is_last, left, header.base_offset, header.base_timestamp, wanted, from_offset)
        except CorruptRecordError as error:
            raise CorruptRecordError(f"the batch at offset {header.base_offset} holds {error}") from None

    found = Found(left, 0)
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


def _find_compiled(
    data: bytes,
    is_last: bool,
    left: int,
    base_offset: int,
    base_timestamp: int,
    timestamp: int,
    from_offset: int,
) -> Found:
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
        raise CorruptRecordError("bytes that are no records")
    return Found(left, at, offset if is_found else None, its_timestamp)
