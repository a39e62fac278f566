"""The first record of a batch that is at least so late, without making an object of each record.

A batch that comes from a client may hold millions of records in a few kilobytes, and its header may promise a
timestamp that none of them has. So its records are decompressed a part at a time and gone over by a compiled loop,
without the GIL. A batch that is small by its header and by what it becomes does not need the loop, which takes a second
to load.
"""

from __future__ import annotations

from suiro.errors import CorruptRecordError
from suiro.protocol.compression import TooMuchError, decompressed_parts
from suiro.protocol.crc32c import BytesLike
from suiro.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header
from suiro.protocol.records import decode_batch

__all__ = ["first_at_or_after"]

_FEW_RECORDS = 1000
_FEW_BYTES = 4 << 20
_EARLIEST = -(1 << 63)


def first_at_or_after(batch: BytesLike, timestamp: int, *, from_offset: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the batch's first record at least this late, from an offset on.

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
    return _found_by_kernel(batch, header, timestamp, from_offset)


def _found_by_kernel(
    batch: BytesLike, header: BatchHeader, timestamp: int, from_offset: int
) -> tuple[int, int] | None:
    import numpy as np

    from suiro.protocol import kernels

    result = np.zeros(6, np.int64)
    left, rest, skipped = header.count, b"", 0
    wanted = _EARLIEST if header.is_log_append_time else timestamp

    def look(data: bytes, *, is_last: bool) -> int:
        """How far it came: behind the end where a record goes on in the next part."""
        nonlocal left
        kernels.find_by_time(
            np.frombuffer(data, np.uint8),
            is_last,
            left,
            header.base_offset,
            header.base_timestamp,
            wanted,
            from_offset,
            result,
        )
        if result[0] != kernels.OK:
            raise CorruptRecordError(
                f"the batch at offset {header.base_offset} holds bytes that are no records"
            )
        left = int(result[2])
        return int(result[3])

    for part in decompressed_parts(header.compression, memoryview(batch)[HEADER_SIZE : header.size]):
        if skipped >= len(part):
            skipped -= len(part)
            continue
        data = rest + part[skipped:]
        at = look(data, is_last=False)
        if result[1]:
            break
        rest, skipped = data[at:], max(0, at - len(data))
    else:
        if skipped == 0 and rest:
            skipped = max(0, look(rest, is_last=True) - len(rest))
        if not result[1] and (skipped or left):
            raise CorruptRecordError(
                f"the batch at offset {header.base_offset} claims {header.count} records and ends before them"
            )
    if not result[1]:
        return None
    found = int(result[4]), int(result[5])
    return (found[0], header.max_timestamp) if header.is_log_append_time else found
