"""Which records are read, and every rule of data loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from suiro.clock import ManualClock
from suiro.errors import ConfigError, DataLossError, UnknownTopicError
from suiro.protocol.records import Record, encode_batch
from suiro.spark.offsets import Positions
from suiro.spark.options import SourceOptions
from suiro.spark.planning import Allowance, OffsetRange, Planner

ID, OTHER_ID = UUID(int=1), UUID(int=2)


@dataclass
class Partition:
    partition: int
    leader: int = 0


@dataclass
class Topic:
    topic_id: UUID | None
    internal: bool
    partitions: list[Partition]


@dataclass
class Listed:
    offset: int


@dataclass
class Fetched:
    last_stable_offset: int
    data: bytes = b""


class Log:
    """(earliest, last stable) of each partition; a list of ends is told one after another."""

    def __init__(self, spans: Mapping[tuple[str, int], tuple[int, int | list[int]]], *, record_bytes: int = 0) -> None:
        self.spans = dict(spans)
        self.record_bytes = record_bytes
        self.ids: dict[str, UUID | None] = {topic: ID for topic, _ in spans}
        self.times: dict[int, int] = {}
        self.listed = 0
        self.leaders: dict[tuple[str, int], int] = {}
        self.waits_ms: list[int] = []
        self.failure: Exception | None = None

    def metadata(self, topics: Sequence[str] | None = None) -> dict[str, Topic]:
        names = {topic for topic, _ in self.spans}
        return {
            name: Topic(
                self.ids[name],
                name.startswith("__"),
                [Partition(p, self.leaders.get((t, p), 0)) for t, p in self.spans if t == name],
            )
            for name in names
            if topics is None or name in topics
        }

    def _sample(self, first: int) -> bytes:
        value = bytes(self.record_bytes)
        records = [Record(offset=first + at, timestamp=0, key=None, value=value) for at in range(10)]
        return encode_batch(records, base_offset=first)

    def list_offsets(
        self, wanted: Mapping[tuple[str, int], int], *, read_committed: bool = False
    ) -> dict[tuple[str, int], Listed]:
        self.listed += 1
        assert read_committed
        return {place: Listed(self._one(place, what)) for place, what in wanted.items()}

    def fetch(self, offsets: Mapping[tuple[str, int], int], **limits: Any) -> dict[tuple[str, int], Fetched]:
        if limits["max_wait_ms"] == 0:
            return {place: Fetched(0, self._sample(offset)) for place, offset in offsets.items()}
        assert limits["read_committed"]
        assert limits["max_bytes"] == limits["partition_max_bytes"] == 1
        self.waits_ms.append(limits["max_wait_ms"])
        if self.failure is not None:
            raise self.failure
        return {place: Fetched(self._one(place, -1)) for place in offsets}

    def _one(self, place: tuple[str, int], what: int) -> int:
        first, end = self.spans[place]
        if what == -2:
            return first
        if what == -1:
            if isinstance(end, list):
                return end.pop(0) if len(end) > 1 else end[0]
            return end
        return self.times.get(what, -1)


def planner(log: Log, **options: str) -> Planner:
    topics = {} if "subscribePattern" in options else {"subscribe": "a"}
    parsed = SourceOptions.parse({"kafka.bootstrap.servers": "h:1"} | topics | options)
    return Planner(log, parsed, clock=ManualClock())


def at(offsets: dict[tuple[str, int], int], *, topic_id: UUID = ID) -> Positions:
    return Positions(offsets=offsets, topic_ids={topic: topic_id.hex for topic, _ in offsets})


def span(partition: int, start: int, end: int, topic: str = "a", topic_id: str | None = ID.hex) -> OffsetRange:
    return OffsetRange(topic=topic, partition=partition, start=start, end=end, topic_id=topic_id)


A0, A1 = ("a", 0), ("a", 1)


def test_a_batch_reads_everything_by_default() -> None:
    assert planner(Log({A0: (5, 9), A1: (0, 0)})).batch_ranges() == [span(0, 5, 9)]


def test_a_stream_begins_at_the_end_by_default() -> None:
    positions = planner(Log({A0: (5, 9)})).initial()
    assert positions.offsets == {A0: 9}
    assert positions.initial
    assert planner(Log({A0: (5, 9)}), startingOffsets="earliest").initial().offsets == {A0: 5}


def test_a_time_that_nothing_is_younger_than_is_an_error_or_the_end() -> None:
    log = Log({A0: (0, 9), A1: (0, 7)})
    with pytest.raises(ConfigError, match=r"young as the time given for a-0 \(1000\), a-1 .*Strategy to latest"):
        planner(log, startingTimestamp="1000").initial()
    latest = {"startingTimestamp": "1000", "startingOffsetsByTimestampStrategy": "latest"}
    assert planner(log, **latest).initial().offsets == {A0: 9, A1: 7}
    assert planner(log, endingTimestamp="1000").batch_ranges() == [span(0, 0, 9), span(1, 0, 7)]
    log.times[1000] = 4
    assert planner(log, startingTimestamp="1000").initial().offsets == {A0: 4, A1: 4}


def test_a_batch_the_wrong_way_round_is_a_wrong_option_and_no_loss() -> None:
    log = Log({A0: (0, 9)})
    log.times = {1000: 4, 2000: 7}
    wrong = [
        {"startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"0":3}}'},
        {"startingTimestamp": "2000", "endingTimestamp": "1000"},
    ]
    for options in wrong:
        for fails in ("true", "false"):
            with pytest.raises(ConfigError, match=r"begin to read a-0 at offset .* beyond where they end"):
                planner(log, failOnDataLoss=fails, **options).batch_ranges()
    with pytest.raises(DataLossError):  # the log itself ends before
        planner(log, startingOffsets='{"a":{"0":12}}').batch_ranges()
    right = {"startingTimestamp": "1000", "endingTimestamp": "2000"}
    assert planner(log, **right).batch_ranges() == [span(0, 4, 7)]


def test_offsets_by_partition_must_name_all_of_them() -> None:
    log = Log({A0: (0, 9), A1: (0, 9)})
    chosen = planner(log, startingOffsets='{"a":{"0":3,"1":-1}}').initial().offsets
    assert chosen == {A0: 3, A1: 9}
    with pytest.raises(ConfigError, match="missing: a-1"):
        planner(log, startingOffsets='{"a":{"0":3}}').initial()
    with pytest.raises(ConfigError, match="not read: b-0"):
        planner(log, startingOffsets='{"a":{"0":3,"1":3},"b":{"0":1}}').initial()


def test_a_topic_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownTopicError, match="'a' does not exist"):
        planner(Log({("b", 0): (0, 1)})).initial()


def test_a_pattern_matches_whole_names_and_no_internal_topic() -> None:
    log = Log({("ab", 0): (0, 1), ("abc", 0): (0, 1), ("__ab", 0): (0, 1)})
    parsed = SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribePattern": ".*ab"})
    found = Planner(log, parsed, clock=ManualClock()).batch_ranges()
    assert found == [span(0, 0, 1, "ab")]


def test_the_limit_is_shared_and_a_standstill_asks_once() -> None:
    log = Log({A0: (0, 90), A1: (0, 10)})
    plan = planner(log)
    end = plan.latest(at({A0: 0, A1: 0}), max_offsets=10)
    assert end.offsets == {A0: 9, A1: 1}
    assert plan.ranges(at({A0: 0, A1: 0}), end) == [span(0, 0, 9), span(1, 0, 1)]
    before = log.listed
    assert plan.latest(at({A0: 90, A1: 10})).offsets == {A0: 90, A1: 10}
    assert log.listed == before + 1


def test_the_first_micro_batch_remembers_where_it_began() -> None:
    log = Log({A0: (0, 9)})
    first = planner(log)
    begin = first.initial()
    log.spans[A0] = (0, 20)
    end = first.latest(begin)
    log.spans[A0] = (0, 30)
    after_crash = planner(log)
    assert after_crash.ranges(after_crash.initial(), end) == [span(0, 9, 20)]


def test_a_frozen_end_is_kept_and_new_partitions_wait() -> None:
    log = Log({A0: (0, 9)})
    plan = planner(log)
    frozen = plan.latest(Positions(offsets={}))
    log.spans = {A0: (0, 50), A1: (0, 5)}
    again = planner(log)
    assert again.latest(at({A0: 3}), frozen=frozen).offsets == {A0: 9}


@pytest.mark.parametrize("options", [{}, {"subscribe": "a,b"}, {"subscribePattern": "a|b"}])
def test_what_came_later_and_begins_late_has_lost_records(options: dict[str, str]) -> None:
    """As in Spark's connector. A topic that was named later is not awaited, and may begin where it likes."""
    late = ("b", 0) if options else A1
    log = Log({A0: (0, 5), late: (7, 9)})
    planned = at({A0: 5, late: 9})
    if "subscribe" in options:
        assert planner(log, **options).ranges(at({A0: 5}), planned) == [span(0, 7, 9, topic="b")]
        return
    with pytest.raises(DataLossError, match=r"-[01] is new here, and begins at 7 by now"):
        planner(log, **options).ranges(at({A0: 5}), planned)
    careless = planner(log, failOnDataLoss="false", **options)
    assert careless.ranges(at({A0: 5}), planned) == [span(late[1], 7, 9, topic=late[0])]


def test_a_new_partition_is_read_from_its_beginning() -> None:
    log = Log({A0: (0, 9), A1: (0, 5)})
    plan = planner(log)
    end = plan.latest(at({A0: 9}))
    assert plan.ranges(at({A0: 9}), end) == [span(1, 0, 5)]


def test_a_leader_that_catches_up_is_waited_for() -> None:
    log = Log({A0: (0, [3, 5, 9, 9])})
    assert planner(log).latest(at({A0: 7})).offsets == {A0: 9}
    log = Log({A0: (0, [3, 9])})
    assert planner(log).ranges(at({A0: 2}), at({A0: 9})) == [span(0, 2, 9)]


def test_ranges_are_split_where_more_tasks_are_wanted() -> None:
    log = Log({A0: (0, 80), A1: (0, 20)})
    found = planner(log, minPartitions="5").batch_ranges()
    assert found == [span(0, n, n + 20) for n in range(0, 80, 20)] + [span(1, 0, 20)]


LOSSES = {
    "retention removed the start": (
        Log({A0: (5, 20)}),
        at({A0: 2}),
        at({A0: 10}),
        "begins at 5 now.*retention, which goes by their timestamps",
        [span(0, 5, 10)],
    ),
    "the end is gone": (Log({A0: (0, 8)}), at({A0: 2}), at({A0: 10}), "ends at 8", [span(0, 2, 8)]),
    "all of it is gone": (Log({A0: (0, 1)}), at({A0: 2}), at({A0: 10}), "ends at 1", []),
    "the topic vanished": (Log({("b", 0): (0, 1)}), at({A0: 2}), at({A0: 10}), "a-0 is gone", []),
    "a partition vanished": (
        Log({A0: (0, 10)}),
        at({A0: 2, A1: 2}),
        at({A0: 10, A1: 10}),
        "a-1 is gone",
        [span(0, 2, 10)],
    ),
    "the topic was made again": (
        Log({A0: (0, 50)}),
        at({A0: 2}, topic_id=OTHER_ID),
        at({A0: 10}),
        "deleted and made again",
        [span(0, 0, 10)],
    ),
    "it was made again after planning": (
        Log({A0: (0, 50)}),
        at({A0: 2}, topic_id=OTHER_ID),
        at({A0: 10}, topic_id=OTHER_ID),
        "deleted and made again",
        [],
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss_fails_before_anything_runs_or_is_clamped(name: str) -> None:
    log, start, end, message, clamped = LOSSES[name]
    with pytest.raises(DataLossError, match=f"{message}.* topology with a new application id"):
        planner(log).ranges(start, end)
    assert planner(log, failOnDataLoss="false").ranges(start, end) == clamped


def test_a_log_that_became_shorter_is_loss_and_never_read_again_from_before() -> None:
    log = Log({A0: (0, 4)})
    with pytest.raises(DataLossError, match="ends at 4"):
        planner(log).latest(at({A0: 7}))
    assert planner(log, failOnDataLoss="false").latest(at({A0: 7})).offsets == {A0: 7}


def test_a_topic_made_again_is_noticed_while_planning() -> None:
    log = Log({A0: (0, 4)})
    with pytest.raises(DataLossError, match="made again"):
        planner(log).latest(at({A0: 2}, topic_id=OTHER_ID))
    end = planner(log, failOnDataLoss="false").latest(at({A0: 2}, topic_id=OTHER_ID))
    assert (end.offsets, end.topic_ids) == ({A0: 4}, {"a": ID.hex})


def test_a_broker_without_topic_ids_leaves_it_open() -> None:
    log = Log({A0: (0, 9)})
    log.ids["a"] = None
    assert planner(log).ranges(at({A0: 2}), replace(at({A0: 9}), topic_ids={})) == [span(0, 2, 9, topic_id=None)]


def test_no_micro_batch_crosses_a_boundary() -> None:
    """Muted until every partition is there; a partition that it does not name waits for the others."""
    log = Log({("a", 0): (0, 100), ("a", 1): (0, 50), ("a", 2): (0, 7)})
    made = planner(log, startingOffsets="earliest")
    boundary = {("a", 0): 40, ("a", 1): 10}
    at, seen = made.initial(), []
    for _ in range(9):
        before = at
        at = made.latest(before, max_offsets=24, boundary=boundary)
        seen.append(([at.offsets["a", partition] for partition in range(3)], at.replayed))
        if at.offsets["a", 0] > 40:
            break
    replayed = [ends for ends, is_replayed in seen if is_replayed]
    assert replayed == [[19, 5, 0], [38, 10, 0], [40, 10, 0]]
    assert not seen[3][1]
    assert seen[3][0][2] > 0
    assert Positions.from_json(at.to_json()) == at


def test_a_replayed_micro_batch_is_told_again() -> None:
    made = planner(Log({("a", 0): (0, 9)}), startingOffsets="earliest")
    ends = made.latest(made.initial(), boundary={("a", 0): 5})
    assert Positions.from_json(ends.to_json()).replayed
    assert ends.behind == frozenset()
    assert not made.latest(ends, boundary={("a", 0): 5}).replayed
    assert not made.latest(made.initial(), boundary={("a", 0): 0}).replayed


def test_what_follows_never_goes_beyond_the_moving_boundary() -> None:
    log = Log({("a", 0): (0, 50), ("a", 1): (0, 50)})
    made = planner(log, startingOffsets="earliest")
    before = made.initial()
    for stop in (10, 10, 30, 50):
        found = made.latest(before, boundary={("a", 0): stop}, follows=True)
        assert found.replayed
        assert found.offsets == {("a", 0): stop, ("a", 1): 0}
        before = found
    assert not found.behind


def test_a_boundary_below_what_retention_left_is_passed_already() -> None:
    made = planner(Log({("a", 0): (6, 9)}), startingOffsets="earliest")
    found = made.latest(made.initial(), boundary={("a", 0): 5})
    assert (found.replayed, dict(found.offsets)) == (False, {("a", 0): 9})


def test_a_topic_that_is_made_again_after_a_rebuild_is_not_replayed() -> None:
    """Its records have offsets that the boundary names, and nobody has processed them."""
    log = Log({A0: (0, 50), ("b", 0): (0, 5)})
    made = planner(log, subscribe="a,b", startingOffsets="earliest", failOnDataLoss="false")
    boundary = {A0: 40, ("b", 0): 5}
    replayed = made.latest(made.initial(), boundary=boundary)
    assert replayed.replayed
    done = made.latest(replayed, boundary=boundary)
    assert (done.replayed, done.offsets) == (False, {A0: 50, ("b", 0): 5})
    log.spans[A0], log.ids["a"] = (0, 30), OTHER_ID
    again = planner(log, subscribe="a,b", startingOffsets="earliest", failOnDataLoss="false")
    found = again.latest(done, boundary=boundary)
    assert (found.replayed, found.offsets) == (False, {A0: 30, ("b", 0): 5})


class Steps:
    """A pace that says what it is told to, and remembers what it was asked."""

    def __init__(self, *allowed: Allowance) -> None:
        self._allowed = list(allowed)
        self.asked: list[dict[tuple[str, int], int]] = []
        self.most: int | None = None

    def allowance(
        self, begins: Any, ends: Any, max_offsets: int | None, *, most: int | None, unlimited: Any
    ) -> Allowance:
        self.asked.append(dict(ends))
        self.most = most
        return self._allowed.pop(0)


def test_a_pace_shortens_a_micro_batch_and_what_it_leaves_is_behind() -> None:
    made = planner(Log({A0: (0, 90), A1: (0, 10)}))
    pace = Steps(Allowance(ends={A0: 20, A1: 10}, max_offsets=8))
    end = made.latest(at({A0: 0, A1: 6}), max_offsets=50, evenly=True, pace=pace)
    assert end.offsets == {A0: 4, A1: 10}
    assert end.behind == {A0}
    assert pace.asked == [{A0: 90, A1: 10}]
    end = made.latest(end, pace=Steps(Allowance(ends={A0: 20, A1: 10}, max_offsets=None)))
    assert (end.offsets, end.behind) == ({A0: 20, A1: 10}, {A0})


def test_a_pace_may_take_more_than_the_limit_says() -> None:
    made = planner(Log({A0: (0, 90), A1: (0, 10)}))
    more = Steps(Allowance(ends={A0: 90, A1: 10}, max_offsets=60))
    end = made.latest(at({A0: 0, A1: 0}), max_offsets=6, evenly=True, pace=more)
    assert (end.offsets, end.behind) == ({A0: 50, A1: 10}, {A0})


def test_bytes_limit_a_micro_batch_whatever_the_pace_would_take() -> None:
    made = planner(Log({A0: (0, 9_000), A1: (0, 9_000)}, record_bytes=1_000))
    start = at({A0: 0, A1: 0})
    end = made.latest(start, max_offsets=8_000, max_bytes=1_000_000, evenly=True)
    assert 480 < end.offsets[A0] <= 500
    assert 480 < end.offsets[A1] <= 500
    assert end.behind == {A0, A1}
    more = Steps(Allowance(ends={A0: 9_000, A1: 9_000}, max_offsets=16_000))
    assert made.latest(start, max_bytes=1_000_000, evenly=True, pace=more).offsets == end.offsets
    assert more.most is not None
    assert 960 < more.most <= 1_000


def test_bytes_do_not_limit_the_topics_that_have_no_limit() -> None:
    made = planner(Log({A0: (0, 9_000), ("b", 0): (0, 9_000)}, record_bytes=1_000), subscribe="a,b")
    end = made.latest(at({A0: 0, ("b", 0): 0}), max_bytes=1_000_000, evenly=True, unlimited=["b"])
    assert end.offsets["b", 0] == 9_000
    assert 960 < end.offsets[A0] <= 1_000
    assert end.behind == {A0}


def test_at_a_place_that_a_pace_names_it_also_names_what_is_behind() -> None:
    made = planner(Log({A0: (0, 90), A1: (0, 10)}))
    exact = Allowance(ends={A0: 20, A1: 4}, max_offsets=None, behind=frozenset([A1]))
    end = made.latest(at({A0: 0, A1: 0}), max_offsets=3, evenly=True, pace=Steps(exact))
    assert (end.offsets, end.behind) == ({A0: 20, A1: 4}, {A1})


def test_a_pace_is_not_asked_while_state_is_rebuilt() -> None:
    made = planner(Log({A0: (0, 90)}))
    pace = Steps(Allowance(ends={A0: 50}, max_offsets=None))
    end = made.latest(replace(at({A0: 0}), initial=True), boundary={A0: 40}, pace=pace)
    assert (end.offsets, end.replayed, pace.asked) == ({A0: 40}, True, [])
    assert made.latest(end, boundary={A0: 40}, pace=pace).offsets == {A0: 50}


def test_no_task_reads_more_of_a_partition_than_is_said() -> None:
    log = Log({A0: (0, 10), A1: (0, 3)})
    whole = at({A0: 10, A1: 3})
    pieces = planner(log, maxRecordsPerPartition="4").ranges(at({A0: 0, A1: 0}), whole)
    assert pieces == [span(0, 0, 3), span(0, 3, 6), span(0, 6, 10), span(1, 0, 3)]
    finer = planner(log, maxRecordsPerPartition="8", minPartitions="6").ranges(at({A0: 0, A1: 0}), whole)
    assert [item.partition for item in finer] == [0, 0, 0, 0, 0, 1]


def test_one_request_waits_for_more() -> None:
    log = Log({A0: (0, [5, 5, 6]), A1: (0, 3)})
    plan = planner(log)
    all_read = at({A0: 5, A1: 3})
    assert plan.latest(all_read).offsets == all_read.offsets
    assert not plan.wait_for_more(all_read, 400)
    assert plan.wait_for_more(all_read, 500)
    assert log.waits_ms == [400, 500]


def test_several_leaders_are_not_waited_for_long() -> None:
    """The answer of one that has records would lie there until the others have waited for theirs."""
    log = Log({A0: (0, 5), A1: (0, 3)})
    log.leaders[A1] = 1
    plan = planner(log)
    all_read = at({A0: 5, A1: 3})
    plan.latest(all_read)
    assert not plan.wait_for_more(all_read, 400)
    assert log.waits_ms == [25]


def test_what_fails_while_waiting_is_left_to_the_next_look() -> None:
    log = Log({A0: (0, 5)})
    log.failure = UnknownTopicError("topic 'a'", "UNKNOWN_TOPIC_OR_PARTITION")
    assert not planner(log).wait_for_more(at({A0: 5}), 400)
    assert not planner(log).wait_for_more(at({A0: 5}), 0)
    assert log.waits_ms == [400]
