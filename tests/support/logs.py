"""Batches and partition logs for the tests of suiro.log: make, open, read through, compare."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

from suiro.clock import ManualClock
from suiro.log import LogConfig, PartitionLog, ReadResult
from suiro.log.lookup import TimeLookup
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import Record, control_type, decode_batch, encode_batch

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
NOW_MS = 1_000_000_000_000


def batch(
    count: int = 1,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp: int = NOW_MS,
    timestamps: Sequence[int] | None = None,
    value: bytes = b"value",
    compression: int = 0,
) -> bytes:
    records = [
        Record(
            offset=number,
            timestamp=timestamps[number] if timestamps else timestamp + number,
            key=b"key-%d" % number,
            value=value,
        )
        for number in range(count)
    ]
    return encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        compression=compression,
    )


def open_log(
    directory: Path,
    *,
    config: LogConfig | None = None,
    clock: ManualClock | None = None,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    gaps_below: int | None = None,
) -> PartitionLog:
    return PartitionLog(
        directory,
        topic="flights",
        partition=0,
        topic_id=TOPIC_ID,
        config=config or LogConfig(),
        clock=clock or ManualClock(wall_ms=NOW_MS),
        clean_shutdown=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        gaps_below=gaps_below,
    )


def open_transaction(log: PartitionLog, producer_id: int) -> int | None:
    """The first offset of the producer's open transaction, or None."""
    entry = log.producer(producer_id)
    return None if entry is None or entry.transaction_first_offset < 0 else entry.transaction_first_offset


def region_bytes(result: ReadResult) -> bytes:
    return b"".join(os.pread(fd, length, position) for fd, position, length in result.regions)


def read_all(log: PartitionLog, *, read_committed: bool = False, max_bytes: int = 1 << 20) -> list[str]:
    """Every record as `offset:value` (markers as `offset:commit`), reading on as a consumer does."""
    offset, found = log.log_start_offset, []
    while True:
        result = log.read(offset, max_bytes=max_bytes, read_committed=read_committed)
        if not result.regions:
            return found
        data = region_bytes(result)
        for position, header in iter_headers(data):
            for record in decode_batch(data, position):
                text = control_type(record) if header.is_control else (record.value or b"").decode()
                if record.offset >= offset:
                    found.append(f"{record.offset}:{text}")
            offset = header.next_offset


def state_of(log: PartitionLog) -> dict[str, object]:
    """All that a reader or writer could tell two logs apart by."""
    return {
        "end": log.log_end_offset,
        "stable": log.last_stable_offset,
        "records": read_all(log),
        "producers": sorted(
            (
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
                [(b.first_sequence, b.last_sequence, b.first_offset, b.last_offset) for b in entry.batches],
            )
            for entry in log.producer_states()
        ),
        "aborted": [entry for segment in log.segments for entry in segment.transaction_index.entries],
        "offsets": [_entries(segment.offset_index) for segment in log.segments],
        "latest": first_found(log.lookups_of_max_timestamp()),
        "epochs": [entry for entry in log.leader_epochs.entries if entry[1] < log.log_end_offset],
    }


def first_found(lookups: Iterator[TimeLookup]) -> tuple[int, int] | None:
    """(offset, timestamp) of what the first look-up finds that finds anything."""
    return next((found for one in lookups if (found := one.run()) is not None), None)


def _entries(index: object) -> list[tuple[int, ...]]:
    return [index.entry(number) for number in range(index.count)]  # type: ignore[attr-defined]
