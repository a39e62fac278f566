"""Compaction for tests: clean a log in this process, and read what a read_committed consumer sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from suiro.errors import CorruptRecordError
from suiro.log import PartitionLog
from suiro.log.compaction import CLEANED_SUFFIX, Cleaned, CleanerSettings, Dirtiness, dirtiness
from suiro.protocol.record_batch import BatchHeader, iter_headers
from suiro.protocol.records import Record, control_type, decode_batch
from support.logs import region_bytes

SMALL = CleanerSettings(dedupe_buffer_bytes=1 << 16, io_buffer_bytes=1 << 12)


def dirty(log: PartitionLog, now_ms: int, *, checkpoint: int | None = None) -> Dirtiness:
    return dirtiness(log.cleaning.facts(), log.config, checkpoint=checkpoint, now_ms=now_ms)


def clean_log(
    log: PartitionLog,
    now_ms: int,
    *,
    checkpoint: int | None = None,
    settings: CleanerSettings = SMALL,
    compiled: bool = True,
) -> int:
    """One cleaning from the checkpoint on, put in place group by group; the new checkpoint."""
    from suiro.log.cleaning import clean

    todo = dirty(log, now_ms, checkpoint=checkpoint)
    if not todo.cleanable_bytes:
        return todo.first_dirty_offset
    job = log.cleaning.begin(todo, settings)
    try:
        for done in clean(replace(job, now_ms=now_ms), compiled=compiled):
            if isinstance(done, Cleaned):
                return done.end_offset
            log.cleaning.replace_segments(done.bases)
    finally:
        log.cleaning.end()
    raise AssertionError("a cleaning ends with Cleaned")


def cleaned_both_ways(
    log: PartitionLog, now_ms: int, *, checkpoint: int | None = None, settings: CleanerSettings = SMALL
) -> tuple[object, object]:
    """What the compiled and the plain cleaning make of a log, which stays as it is: the names and bytes of the files,
    and the totals; or the word for damage."""
    from suiro.log.cleaning import clean

    todo = dirty(log, now_ms, checkpoint=checkpoint)
    if not todo.cleanable_bytes:
        return None, None
    job = replace(log.cleaning.begin(todo, settings), now_ms=now_ms)

    def outcome(compiled: bool) -> object:
        found: list[object] = []
        try:
            for done in clean(job, compiled=compiled):
                written = sorted(log.directory.glob(f"*{CLEANED_SUFFIX}"))
                found.append((done, [(path.name, path.read_bytes()) for path in written]))
                for path in written:
                    path.unlink()
        except CorruptRecordError:
            return "damaged"
        return found

    try:
        return outcome(True), outcome(False)
    finally:
        log.cleaning.end()


def batches(log: PartitionLog) -> Iterator[tuple[BatchHeader, tuple[Record, ...]]]:
    offset = log.log_start_offset
    while (result := log.read(offset, max_bytes=1 << 20, read_committed=False)).regions:
        data = region_bytes(result)
        for position, header in iter_headers(data):
            yield header, decode_batch(data, position)
            offset = header.next_offset


def committed_records(log: PartitionLog, *, max_bytes: int = 1 << 20) -> list[Record]:
    """What a read_committed consumer is given (Kafka's CompletedFetch, response by response)."""
    offset, found = log.log_start_offset, []
    while (result := log.read(offset, max_bytes=max_bytes, read_committed=True)).regions:
        aborted: set[int] = set()
        starting = sorted(result.aborted, key=lambda entry: entry[1])
        data = region_bytes(result)
        for position, header in iter_headers(data):
            while starting and starting[0][1] <= header.last_offset:
                aborted.add(starting.pop(0)[0])
            records = decode_batch(data, position)
            if header.is_control:
                if records and control_type(records[0]) == "abort":
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [record for record in records if record.offset >= offset]
            offset = header.next_offset
    return found


def latest_values(records: list[Record]) -> dict[bytes, bytes]:
    """The table that a log stands for: the last value of each key that was not deleted."""
    table: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
