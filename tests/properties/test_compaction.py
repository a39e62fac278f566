"""Any log, cleaned any number of times, at any time: the same table, and nothing gone that should be there.

The model is the list of what was written. After each cleaning: a record is there exactly if it is the newest of
its key in the cleaned part (or behind it), was not aborted, and is no tombstone whose time is over; offsets rise
and nothing moved; the consumer's view, the producers' state and look-ups by time follow from that.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.cleaning import batches, clean_log, cleaned_both_ways, committed_records, latest_values
from support.logs import NOW_MS, first_found, open_log
from support.share import examples

from suiro.clock import ManualClock
from suiro.log import LogConfig, PartitionLog
from suiro.log.compaction import CleanerSettings
from suiro.protocol.records import Record, encode_batch

RETENTION_MS = 1000
CONFIG = LogConfig(
    segment_bytes=900,
    index_interval_bytes=100,
    cleanup_policy=("compact",),
    delete_retention_ms=RETENTION_MS,
)
FIRST_TRANSACTIONAL = 100


@dataclass(frozen=True, slots=True)
class Write:
    producer: int  # -1: none; 100 and above: transactional
    records: tuple[tuple[int | None, int | None, int], ...]  # key, value, timestamp
    codec: int


@dataclass(frozen=True, slots=True)
class End:
    producer: int
    commit: bool


@dataclass(frozen=True, slots=True)
class Clean:
    wait_ms: int
    reopen: bool


_records = st.tuples(
    st.one_of(st.integers(0, 5), st.integers(0, 5), st.none()),
    st.one_of(st.integers(0, 99), st.none()),
    st.integers(0, 300),
)
_writes = st.builds(
    Write,
    producer=st.sampled_from([-1, -1, 10, 100, 100, 101]),
    records=st.lists(_records, min_size=1, max_size=6).map(tuple),
    codec=st.integers(0, 4),
)
_ends = st.builds(End, producer=st.sampled_from([100, 101]), commit=st.booleans())
_cleans = st.builds(Clean, wait_ms=st.sampled_from([0, 400, 1500]), reopen=st.booleans())
histories = st.lists(st.one_of(_writes, _writes, _ends, st.just("roll"), _cleans), max_size=40)


@dataclass(slots=True)
class Model:
    """What was written, by offset; `open` are the offsets of transactions that have not ended."""

    records: dict[int, Record] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    open: dict[int, list[int]] = field(default_factory=dict)
    first_cleaned_ms: dict[int, int] = field(default_factory=dict)  # of a tombstone that stayed

    def survivors(self, end: int, now_ms: int, before: set[int]) -> tuple[set[int], set[int]]:
        """(offsets that must be there, offsets that may be) after cleaning up to `end`."""
        newest = {
            record.key: offset
            for offset, record in sorted(self.records.items())
            if offset < end and offset not in self.aborted and record.key is not None
        }
        stay, may = set(), set()
        for offset in before:
            record = self.records[offset]
            if offset >= end:
                stay.add(offset)
            elif offset in self.aborted or newest.get(record.key) != offset:
                continue
            elif record.value is None and offset in self.first_cleaned_ms:
                horizon = self.first_cleaned_ms[offset] + RETENTION_MS
                if now_ms < horizon:
                    stay.add(offset)
            else:
                stay.add(offset)
        return stay, may


def data_of(log: PartitionLog) -> dict[int, Record]:
    return {record.offset: record for header, records in batches(log) if not header.is_control for record in records}


@settings(max_examples=examples(60), deadline=None)
@given(histories, st.sampled_from([1 << 16, 24 * 16]), st.booleans())
def test_a_cleaned_log_is_the_same_table(history: list[object], memory: int, compiled: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(wall_ms=NOW_MS)
        log = open_log(Path(folder) / "t-0", config=CONFIG, clock=clock)
        model, sequences, checkpoint = Model(), {}, None
        for step in [*history, Clean(0, True), Clean(1500, True), Clean(1500, False)]:
            match step:
                case Write():
                    write(log, model, sequences, step)
                case End():
                    log.append_control(step.commit, step.producer, 0, 0, NOW_MS)
                    offsets = model.open.pop(step.producer, [])
                    if not step.commit:
                        model.aborted.update(offsets)
                case "roll":
                    log.roll()
                case Clean():
                    clock.advance(step.wait_ms)
                    checkpoint = cleaned_as_the_model_says(log, model, checkpoint, clock, memory, compiled)
                    if step.reopen:
                        log = reopened(log, clock)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.one_of(_writes, _writes, _ends, st.just("roll")), max_size=12),
    _writes,
    st.data(),
)
def test_both_ways_of_cleaning_refuse_the_same_damage(history: list[object], first: Write, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(Path(folder) / "t-0", config=CONFIG, clock=ManualClock(wall_ms=NOW_MS))
        sequences: dict[int, int] = {}
        for step in [first, *history, "roll"]:
            match step:
                case Write():
                    write(log, Model(), sequences, step)
                case End():
                    log.append_control(step.commit, step.producer, 0, 0, NOW_MS)
                case "roll":
                    log.roll()
        path = data.draw(st.sampled_from(sorted(log.directory.glob("*.log"))[:-1]))
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 2))):
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        by_loops, by_python = cleaned_both_ways(log, NOW_MS + 400)
        assert by_python == by_loops


def test_records_that_compress_well_are_no_damage_where_a_cleaning_goes_on_behind_them(
    tmp_path: Path,
) -> None:
    """A full map ends a cleaning inside a segment; the next one passes over the batches before."""
    log = open_log(tmp_path / "t-0", config=LogConfig(cleanup_policy=("compact",)))
    for number in range(3):
        records = [Record(offset=place, timestamp=NOW_MS, key=b"key-%d" % number, value=b"") for place in range(500)]
        log.append(encode_batch(records, compression=4))
    log.roll()
    by_loops, by_python = cleaned_both_ways(log, NOW_MS, checkpoint=700)
    assert by_python == by_loops
    assert by_python != "damaged"


def write(log: PartitionLog, model: Model, sequences: dict[int, int], step: Write) -> None:
    transactional = step.producer >= FIRST_TRANSACTIONAL
    records = [
        Record(
            offset=number,
            timestamp=NOW_MS + timestamp,
            key=None if key is None else b"key-%d" % key,
            value=None if value is None else b"value-%d" % value,
            headers=((f"h{number}", b"x"),) if number % 2 else (),
        )
        for number, (key, value, timestamp) in enumerate(step.records)
    ]
    sequence = sequences.get(step.producer, 0) if step.producer >= 0 else -1
    sequences[step.producer] = sequence + len(records)
    data = encode_batch(
        records,
        producer_id=step.producer,
        producer_epoch=0 if step.producer >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
        compression=step.codec,
    )
    base = log.append(data).base_offset
    for record in records:
        offset = base + record.offset
        model.records[offset] = Record(
            offset=offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        if transactional:
            model.open.setdefault(step.producer, []).append(offset)


def cleaned_as_the_model_says(
    log: PartitionLog, model: Model, checkpoint: int | None, clock: ManualClock, memory: int, compiled: bool
) -> int:
    before, end_before = data_of(log), log.log_end_offset
    table = latest_values(committed_records(log))
    producers = producers_of(log)
    last_offsets = [header.last_offset for header, _ in batches(log)]
    uncleanable = dirty_end(log, clock, checkpoint)
    if memory > 1 << 12:
        by_loops, by_python = cleaned_both_ways(log, clock.wall_ms(), checkpoint=checkpoint)
        assert by_python == by_loops
    end = clean_log(
        log,
        clock.wall_ms(),
        checkpoint=checkpoint,
        settings=CleanerSettings(dedupe_buffer_bytes=memory),
        compiled=compiled,
    )
    after = data_of(log)
    if memory > 1 << 12:
        assert end == uncleanable
    assert end >= (checkpoint or 0)
    stay, _ = model.survivors(end, clock.wall_ms(), set(before))
    if end > (checkpoint or 0):
        assert set(after) == stay
    assert all(after[offset] == model.records[offset] for offset in after)
    for offset, record in after.items():
        if offset < end and record.value is None:
            model.first_cleaned_ms.setdefault(offset, clock.wall_ms())
    committed = committed_records(log)
    assert latest_values(committed) == table
    assert committed_records(log, max_bytes=150) == committed
    assert not model.aborted & {record.offset for record in committed}
    offsets = [header.last_offset for header, _ in batches(log)]
    assert offsets == sorted(set(offsets))
    assert set(offsets) <= set(last_offsets)
    assert log.log_end_offset == end_before
    assert producers_of(log) == producers
    for timestamp in (NOW_MS, NOW_MS + 120, NOW_MS + 250):
        late = [offset for header, records in batches(log) for offset in late_of(header, records, timestamp)]
        found = first_found(log.lookups_by_time(timestamp))
        assert (found and found[0]) == (late[0] if late else None)
    return end


def late_of(header: object, records: tuple[Record, ...], timestamp: int) -> list[int]:
    return [record.offset for record in records if record.timestamp >= timestamp]


def dirty_end(log: PartitionLog, clock: ManualClock, checkpoint: int | None) -> int:
    from support.cleaning import dirty

    found = dirty(log, clock.wall_ms(), checkpoint=checkpoint)
    return found.first_uncleanable_offset if found.cleanable_bytes else found.first_dirty_offset


def producers_of(log: PartitionLog) -> list[tuple[int, int, int, int]]:
    return sorted(
        (entry.producer_id, entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset)
        for entry in log.producer_states()
    )


def reopened(log: PartitionLog, clock: ManualClock) -> PartitionLog:
    """Recovered from nothing but the segments: what a crash and the loss of all snapshots would leave."""
    expected = producers_of(log), log.log_end_offset
    log.abandon()
    for snapshot in log.directory.glob("*.snapshot"):
        snapshot.unlink()
    log = open_log(log.directory, config=CONFIG, clock=clock)
    assert (producers_of(log), log.log_end_offset) == expected
    return log
