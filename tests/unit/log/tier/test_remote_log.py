"""Which remote segments are read, which are garbage, which may go; and the same of what stays on the local disk."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

from suiro.log import LogConfig
from suiro.log.segments import SegmentFacts
from suiro.log.tier import RemoteLog, RemoteSegment, SegmentState
from suiro.log.upkeep import expired_segments, removable

NOW_MS = 1_000_000
STARTED, FINISHED = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DELETING, DELETED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED


def segment(start: int, end: int, *, state: SegmentState = FINISHED, age_ms: int = 0, size: int = 100) -> RemoteSegment:
    return RemoteSegment(
        topic="t",
        topic_id=UUID(int=1),
        partition=0,
        segment_id=uuid4(),
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp=NOW_MS - age_ms,
        event_timestamp=NOW_MS,
        leader_epochs=((0, start),),
        size=size,
        state=state,
    )


def log_of(*segments: RemoteSegment) -> RemoteLog:
    log = RemoteLog()
    for each in segments:
        log.apply(each)
    return log


def test_a_copy_is_read_from_the_moment_it_is_finished() -> None:
    first = segment(0, 9, state=STARTED)
    log = log_of(first)
    assert list(log.readable) == []
    assert log.next_offset == 0
    log.apply(replace(first, state=FINISHED))
    assert log.next_offset == 10
    assert log.start_offset == 0
    assert log.garbage == ()


def test_a_copy_that_a_death_cut_short_is_garbage() -> None:
    half = segment(10, 19, state=STARTED)
    log = log_of(segment(0, 9), half)
    log.abandon_copies()
    assert log.garbage == (half,)
    log.apply(replace(half, state=DELETED))
    assert log.garbage == ()


def test_deleting_begins_with_not_reading() -> None:
    first, second = segment(0, 9), segment(10, 19)
    log = log_of(first, second, replace(first, state=DELETING))
    assert list(log.readable) == [second]
    assert [each.segment_id for each in log.garbage] == [first.segment_id]
    log.apply(replace(first, state=DELETED))
    assert log.garbage == ()


def test_a_later_copy_takes_the_place_of_those_within_it() -> None:
    first, second, third, merged = segment(0, 9), segment(10, 19), segment(20, 29), segment(0, 19)
    log = log_of(first, second, third, merged)
    assert list(log.readable) == [merged, third]
    assert set(log.garbage) == {first, second}
    again = segment(0, 19)
    log.apply(again)
    assert list(log.readable) == [again, third]
    # A record that comes again, as in a topic written anew, changes nothing.
    log.apply(again)
    assert list(log.readable) == [again, third]


def test_a_look_up_finds_the_segment_that_holds_the_offset_or_the_first_behind_it() -> None:
    first, second = segment(0, 9), segment(15, 19)
    log = log_of(second, first)
    assert [list(log.from_offset(offset)) for offset in (0, 9, 12, 19, 20)] == [
        [first, second],
        [first, second],
        [second],
        [second],
        [],
    ]


def expired(log: RemoteLog, start: int = 0, local: int = 0, **config: int) -> int:
    facts = [SegmentFacts(1000, local, NOW_MS)]
    settings = LogConfig(**{"retention_ms": -1, **config})  # type: ignore[arg-type]
    return len(log.expired(settings, now_ms=NOW_MS, log_start_offset=start, local_only=facts))


def test_what_may_go() -> None:
    log = log_of(segment(0, 9, age_ms=300), segment(10, 19, age_ms=200), segment(20, 29, age_ms=100))
    assert expired(log) == 0
    assert expired(log, start=10) == 1
    assert expired(log, start=15) == 1
    assert expired(log, retention_ms=200) == 2
    assert expired(log, retention_ms=99) == 3
    assert expired(log, retention_bytes=300) == 0
    assert expired(log, retention_bytes=299) == 0
    assert expired(log, retention_bytes=200) == 1
    assert expired(log, retention_bytes=300, local=100) == 1  # what is not copied yet counts too
    assert expired(log, retention_bytes=0) == 3


def test_a_compacted_topic_keeps_what_its_start_does_not_exclude() -> None:
    log = log_of(segment(0, 9, age_ms=300), segment(10, 19, age_ms=200))
    config = LogConfig(cleanup_policy=("compact",), retention_ms=1, retention_bytes=1)
    found = log.expired(config, now_ms=NOW_MS, log_start_offset=10, local_only=[])
    assert [each.start_offset for each in found] == [0]


def local(config: LogConfig, *, start: int = 0) -> int:
    segments = [
        SegmentFacts(10, 100, NOW_MS - 300),
        SegmentFacts(20, 100, NOW_MS - 200),
        SegmentFacts(30, 50, NOW_MS),
    ]
    return expired_segments(segments, keep=config.local_retention, now_ms=NOW_MS, log_start_offset=start)


def test_what_need_not_stay_here() -> None:
    tiered = LogConfig(remote_storage_enable=True, retention_ms=-1)
    assert local(tiered) == 0
    assert local(tiered, start=12) == 1
    assert local(replace(tiered, local_retention_ms=250)) == 1
    assert local(replace(tiered, local_retention_bytes=150)) == 1
    assert local(replace(tiered, local_retention_bytes=50)) == 2
    assert local(replace(tiered, retention_ms=150)) == 2  # what local.retention.ms does not say
    assert local(replace(tiered, retention_ms=150, cleanup_policy=("compact",))) == 0
    assert local(replace(tiered, local_retention_bytes=0)) == 3  # and then the active one is rolled


def test_only_what_is_elsewhere_goes() -> None:
    segments = [SegmentFacts(10, 100, 0), SegmentFacts(20, 100, 0), SegmentFacts(30, 50, 0)]
    assert [removable(segments, 3, safe_offset=offset) for offset in (0, 10, 19, 20, 30)] == [0, 1, 1, 2, 3]
