"""Which log is cleaned, how far, and how fast: the rules without the work."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from support.cleaning import clean_log, committed_records, dirty
from support.logs import NOW_MS, batch, open_log

from suiro.clock import ManualClock
from suiro.config import MAX_LONG
from suiro.log import LogConfig, cleaning
from suiro.log.compaction import CompactionFacts, Dirtiness, SegmentSource, dirtiness, groups_of
from suiro.protocol.records import Record, encode_batch

COMPACTED = LogConfig(cleanup_policy=("compact",))
SEGMENTS = [(0, 100, NOW_MS - 4000), (10, 100, NOW_MS - 3000), (20, 100, NOW_MS - 2000), (30, 50, NOW_MS)]


def found(
    config: LogConfig = COMPACTED, *, checkpoint: int | None = None, stable: int = 35, start: int = 0
) -> Dirtiness:
    firsts = [(base, latest - 500) for base, _, latest in SEGMENTS[:-1]]
    facts = CompactionFacts(
        segments=SEGMENTS,
        log_start_offset=start,
        log_end_offset=35,
        last_stable_offset=stable,
        first_batches=firsts if config.max_compaction_lag_ms < MAX_LONG else (),
    )
    return dirtiness(facts, config, checkpoint=checkpoint, now_ms=NOW_MS)


def bounds(each: Dirtiness) -> tuple[int, int, int, int]:
    return each.first_dirty_offset, each.first_uncleanable_offset, each.clean_bytes, each.cleanable_bytes


def test_all_but_the_active_segment_is_dirty_at_first() -> None:
    assert bounds(found()) == (0, 30, 0, 300)
    assert found().ratio == 1.0
    assert found().is_due(COMPACTED)


def test_what_is_clean_counts_against_cleaning_again() -> None:
    assert bounds(found(checkpoint=20)) == (20, 30, 200, 100)
    assert not found(checkpoint=20).is_due(COMPACTED)
    assert found(checkpoint=20).is_due(LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.3))
    assert not found(checkpoint=30).is_due(LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0))


@pytest.mark.parametrize("checkpoint", [5, 99])
def test_a_checkpoint_that_is_not_in_the_log_any_more(checkpoint: int) -> None:
    """Its records were deleted, or the log was cut: everything is dirty again."""
    assert found(checkpoint=checkpoint, start=8).first_dirty_offset == 8


def test_an_open_transaction_bounds_the_cleaning() -> None:
    assert bounds(found(stable=25)) == (0, 20, 0, 200)
    assert found(stable=3).cleanable_bytes == 0


def test_young_records_are_left_for_the_time_that_the_topic_asks_for() -> None:
    lag = LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=2500)
    assert bounds(found(lag)) == (0, 20, 0, 200)
    assert found(LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=9000)).cleanable_bytes == 0


def test_old_records_are_cleaned_whatever_the_ratio_says() -> None:
    lag = LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=2400)
    assert found(lag, checkpoint=20).overdue  # written 2500 ms ago
    assert found(lag, checkpoint=20).is_due(lag)
    assert not found(LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=2600), checkpoint=20).overdue


def test_neighbours_are_cleaned_into_one_segment_as_far_as_they_fit() -> None:
    sources = [
        SegmentSource(base_offset=base, size=size, offset_index_size=8, time_index_size=12)
        for base, size in ((0, 40), (10, 40), (20, 40), (30, 200), (40, 10))
    ]

    def grouped(bytes_: int = 100, index: int = 1000, end: int = 50) -> list[list[int]]:
        groups = groups_of(sources, segment_bytes=bytes_, segment_index_bytes=index, first_uncleanable_offset=end)
        return [[source.base_offset for source in group] for group in groups]

    assert grouped() == [[0, 10], [20], [30], [40]]
    assert grouped(1000) == [[0, 10, 20, 30, 40]]
    assert grouped(1000, index=24) == [[0, 10], [20, 30], [40]]
    assert grouped(1000, end=2**31 + 10) == [[0, 10, 20, 30], [40]]  # offsets in an index are of 32 bits


def test_cleaning_keeps_to_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(cleaning, "sleep_s", sleep)
    monkeypatch.setattr(cleaning, "monotonic_s", lambda: now[0])
    throttle = cleaning.Throttle(1000)
    throttle.spend(500)
    now[0] += 2.0  # the disk was slower than it might have been
    throttle.spend(2000)
    throttle.spend(1000)
    assert slept == pytest.approx([0.5, 1.0])


def keyed(key: int, value: int, timestamp: int) -> bytes:
    return encode_batch([Record(offset=0, timestamp=timestamp, key=b"%d" % key, value=b"%d" % value)])


def test_compacted_and_deleted_together(tmp_path: Path) -> None:
    """The newest value of a key goes too once it is too old; until then it is the only one."""
    clock = ManualClock(wall_ms=NOW_MS)
    config = LogConfig(cleanup_policy=("compact", "delete"), segment_bytes=200, retention_ms=5000)
    log = open_log(tmp_path / "t-0", config=config, clock=clock)
    for number in range(12):
        log.append(keyed(number % 3, number, NOW_MS + number * 100))
    log.roll()
    for path in log.directory.glob("*.log"):  # a segment that cleaning emptied is as old as its file
        os.utime(path, (NOW_MS / 1000, NOW_MS / 1000))
    checkpoint = clean_log(log, NOW_MS)
    assert [record.value for record in committed_records(log)] == [b"9", b"10", b"11"]
    assert (log.log_start_offset, log.log_end_offset, checkpoint) == (0, 12, 12)
    clock.advance(5000)
    log.append(keyed(1, 12, NOW_MS + 5000))
    assert log.retention.apply() == 0
    clock.advance(1200)
    assert log.retention.apply() > 0
    assert [record.value for record in committed_records(log)] == [b"12"]
    assert log.log_start_offset == 12  # and with it goes what the checkpoint says
    assert dirty(log, NOW_MS, checkpoint=3).first_dirty_offset == 12


@pytest.mark.parametrize("compiled", [True, False])
def test_tombstones_may_be_kept_for_ever(tmp_path: Path, compiled: bool) -> None:
    """The end of the time was before its beginning, or no number that a batch can have."""
    config = LogConfig(segment_bytes=200, cleanup_policy=("compact",), delete_retention_ms=MAX_LONG)
    log = open_log(tmp_path, config=config)
    checkpoint = None
    for now_ms in (NOW_MS, NOW_MS + 1):
        for key, value in ((b"a", None), (b"b", bytes(100)), (b"c", bytes(100))):
            if value is not None or checkpoint is None:
                log.append(encode_batch([Record(offset=0, timestamp=NOW_MS, key=key, value=value, headers=())]))
        checkpoint = clean_log(log, now_ms, checkpoint=checkpoint, compiled=compiled)
    assert (b"a", None) in [(record.key, record.value) for record in committed_records(log)]


def test_partitions_that_were_made_together_roll_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = LogConfig(segment_ms=1000, segment_jitter_ms=600)
    monkeypatch.setattr(random, "randrange", lambda below: below - 200)
    log = open_log(tmp_path / "t-0", config=config)
    for after in (0, 600, 601):
        log.append(batch(timestamp=NOW_MS + after))
    assert [segment.base_offset for segment in log.segments] == [0, 2]
