"""The topic of a coordinator: which partition a key is in. Records are appended, and all are read back at the
start."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from suiro.broker.storage.topics import Partition
from suiro.errors import CorruptRecordError
from suiro.foundation.parts import in_parts
from suiro.log import DamagedLogError, LogError, PartitionLog, StorageError
from suiro.protocol.record_batch import BatchHeader, iter_headers, verify
from suiro.protocol.records import Record, decode_batch, encode_batch

logger = logging.getLogger(__name__)

_READ_BYTES = 4 << 20
_WORTH_COMPACTING = 10_000
_RECORDS_A_BATCH = 500
_BYTES_A_BATCH = 512 << 10
"""Below the smallest `segment.bytes`."""
_T = TypeVar("_T")


def partition_for(key: str, count: int) -> int:
    """The partition of the topic that Kafka chooses for a group or a transactional id: the absolute value of Java's
    hash code modulo the count."""
    value = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    if value == 0x80000000:  # the least of Java's ints, whose absolute value is no int: Kafka takes 0
        return 0
    return min(value, 0x1_0000_0000 - value) % count


def append(
    partition: Partition,
    records: Sequence[tuple[bytes, bytes | None]],
    *,
    timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> int:
    """Append (key, value) records as one batch; with a producer id, as a part of its transaction.

    Returns the offset of the first. Raises LogError.
    """
    batch = encode_batch(
        [Record(offset=index, timestamp=timestamp, key=key, value=value) for index, (key, value) in enumerate(records)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        transactional=producer_id >= 0,
    )
    appended = partition.log.append(batch, origin="coordinator")
    partition.grown()
    return appended.base_offset


def in_batches(records: Iterable[_T], size: Callable[[_T], int]) -> Iterator[list[_T]]:
    """As many records together as one batch may have; one that is larger than that is alone."""
    return in_parts(records, size, max_size=_BYTES_A_BATCH, max_items=_RECORDS_A_BATCH)


def keyed_size(record: tuple[bytes, bytes | None]) -> int:
    return len(record[0]) + len(record[1] or b"")


def replay(log: PartitionLog) -> Iterator[tuple[BatchHeader, tuple[Record, ...]]]:
    """Every batch of the log that has records, from the start to the end. Raises LogError where it is damaged or
    cannot be read.

    A batch that cleaning has emptied says nothing more; a marker's is left when nothing is left of its transaction.
    """
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, max_bytes=_READ_BYTES, read_committed=False, min_one_batch=True)
        try:
            data = b"".join(os.pread(fd, length, position) for fd, position, length in result.regions)
        except OSError as error:
            raise StorageError(f"cannot read {log.directory} from offset {offset} on: {error.strerror}") from error
        before = offset
        for position, header in iter_headers(data):
            if header.last_offset >= offset:
                offset = header.next_offset
                if records := _records(log, data, position, header):
                    yield header, records
        if offset == before:
            if result.regions:
                raise DamagedLogError(f"{log.directory} is damaged: no whole batch begins at offset {offset}")
            return  # Cleaning took what was there.


def _records(log: PartitionLog, data: bytes, position: int, header: BatchHeader) -> tuple[Record, ...]:
    with reading(log, header.base_offset):
        verify(data, position, header)
        return decode_batch(data, position)


@contextmanager
def reading(log: PartitionLog, offset: int) -> Iterator[None]:
    """Raises what makes no sense in a batch, or in its records (`ValueError`), as damage of the log."""
    try:
        yield
    except (CorruptRecordError, ValueError) as error:
        raise DamagedLogError(
            f"{log.directory} is damaged at offset {offset}: {error}; bring its segment back from a copy while the "
            "node is stopped"
        ) from error


def compact(partition: Partition, live: Sequence[tuple[bytes, bytes]], *, timestamp: int) -> None:
    """At a start, if most replayed records are out of date: write the current ones, and let the log begin there.

    Without it a start would take longer with every commit ever made. A crash between the two steps does no harm:
    the next replay sees the old records and then the same values again. An open transaction keeps its records
    where they are, so a log that has one is left as it is.
    """
    log = partition.log
    replayed = log.log_end_offset - log.log_start_offset
    if replayed < _WORTH_COMPACTING + 2 * len(live) or log.last_stable_offset < log.log_end_offset:
        return
    start = log.log_end_offset
    try:
        for batch in in_batches(live, keyed_size):
            append(partition, batch, timestamp=timestamp)
        log.flush()
        log.retention.delete_records_before(start)
    except LogError as error:
        # The node must start all the same: with a full disk, so that clients can delete data.
        logger.warning("%s-%d is not compacted at this start: %s", partition.topic, partition.index, error)
