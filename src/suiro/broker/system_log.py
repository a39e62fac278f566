"""A coordinator's own topic: one record appended, everything read back at the start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from suiro.broker.topics import Partition
from suiro.log import PartitionLog
from suiro.protocol.record_batch import BatchHeader, iter_headers
from suiro.protocol.records import Record, decode_batch, encode_batch

_READ_BYTES = 4 << 20


def partition_for(key: str, count: int) -> int:
    """Kafka's choice of a coordinator partition: Java's `String.hashCode`, made positive, modulo the count."""
    value = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % count


def append(
    partition: Partition,
    records: Sequence[tuple[bytes, bytes | None]],
    *,
    timestamp: int,
    leader_epoch: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> int:
    """Append (key, value) records as one batch; with a producer id, as a part of its transaction.

    Returns the offset of the first. Raises LogError.
    """
    batch = encode_batch(
        [
            Record(offset=index, timestamp=timestamp, key=key, value=value)
            for index, (key, value) in enumerate(records)
        ],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        transactional=producer_id >= 0,
    )
    appended = partition.log.append(batch, leader_epoch=leader_epoch, origin="coordinator")
    partition.grown()
    return appended.base_offset


def replay(log: PartitionLog) -> Iterator[tuple[BatchHeader, tuple[Record, ...]]]:
    """Every batch of the log with its records, from the start to the end."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, max_bytes=_READ_BYTES, read_committed=False, min_one_batch=True)
        data = b"".join(os.pread(fd, length, position) for fd, position, length in result.regions)
        before = offset
        for position, header in iter_headers(data):
            if header.last_offset >= offset:
                yield header, decode_batch(data, position)
                offset = header.next_offset
        if offset == before:
            return
