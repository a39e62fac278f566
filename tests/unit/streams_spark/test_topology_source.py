"""How often a query with nothing to do looks for records, counted on a clock that only these calls move."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from suiro.client import EARLIEST
from suiro.clock import ManualClock
from suiro.spark import Allowance, OffsetRange, Pace, Positions, SinkOptions, SourceOptions
from suiro.spark.planning import Planner
from suiro.streams import StreamsBuilder, serdes
from suiro.streams_spark import source
from suiro.streams_spark.plan import plan
from suiro.streams_spark.rebuild import Boundary
from suiro.streams_spark.source import TopologyReader

Place = tuple[str, int]
SPARK_POLLS_MS = 25
HOUR_MS = 3_600_000
A0 = ("a", 0)
SINK = SinkOptions.parse({"kafka.bootstrap.servers": "h:1", "application.id": "app"})


@dataclass
class Partition:
    partition: int
    leader: int = 0


@dataclass
class Topic:
    partitions: list[Partition]
    topic_id: None = None
    internal: bool = False


@dataclass
class Listed:
    offset: int


@dataclass
class Fetched:
    last_stable_offset: int


class Log:
    """One topic of one partition. A fetch waits as it is asked to, or until `comes_at_ms`."""

    def __init__(self, clock: ManualClock, end: int, comes_at_ms: int | None = None) -> None:
        self.clock, self.end, self.comes_at_ms = clock, end, comes_at_ms
        self.first = 0
        self.requests = 0

    def _look(self) -> None:
        self.requests += 1
        if self.comes_at_ms is not None and self.clock.monotonic_ms() >= self.comes_at_ms:
            self.end, self.comes_at_ms = self.end + 1, None

    def metadata(self, topics: Any = None) -> Mapping[str, Topic]:
        self.requests += 1
        return {"a": Topic([Partition(0)])}

    def list_offsets(self, wanted: Mapping[Place, int], *, read_committed: bool = False) -> Mapping[Place, Listed]:
        self._look()
        return {A0: Listed(self.first if wanted[A0] == EARLIEST else self.end)}

    def fetch(self, offsets: Mapping[Place, int], **limits: Any) -> Mapping[Place, Fetched]:
        now_ms, until_ms = self.clock.monotonic_ms(), self.clock.monotonic_ms() + limits["max_wait_ms"]
        if self.end == offsets[A0]:
            comes_ms = until_ms if self.comes_at_ms is None else max(now_ms, self.comes_at_ms)
            self.clock.advance(min(until_ms, comes_ms) - now_ms)
        self._look()
        return {A0: Fetched(self.end)}


@dataclass
class Running:
    """As much of a program as planning asks for."""

    plan: Any
    source: SourceOptions
    pace: Pace | None = None
    clock_ms: int | None = None
    boundary: Boundary | None = None
    follows: bool = False
    sink: SinkOptions = SINK
    parallelism: int = 2


class Buffered:
    """A pace that lets nothing through."""

    def allowance(
        self,
        begins: Mapping[Place, int],
        ends: Any,
        max_offsets: int | None,
        *,
        most: Any,
        unlimited: Collection[str],
    ) -> Allowance:
        return Allowance(ends=begins, max_offsets=None)


def reader(monkeypatch: pytest.MonkeyPatch, log: Log, *, waits: bool = True, **program: Any) -> TopologyReader:
    builder = StreamsBuilder()
    builder.stream("a", key=serdes.string, value=serdes.string).map_values(str.upper).to("b")
    options = SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "a", "failOnDataLoss": "false"})
    made = Running(plan=plan(builder.build(), "app", {"a": 1}), source=options, **program)
    monkeypatch.setattr(source, "load", lambda _: made)
    monkeypatch.setattr(source, "SystemClock", lambda: log.clock)
    found = TopologyReader("", waits=waits)
    found._plan = Planner(log, options, clock=log.clock)
    return found


def looks_of(found: TopologyReader, log: Log, start: dict[str, Any], *, until_ms: int) -> int:
    """As Spark does it: a look, and if there was nothing, its pause, and another."""
    looks = 0
    while log.clock.monotonic_ms() < until_ms:
        looks += 1
        if found.latestOffset(start, ReadAllAvailable()) != start:
            break
        log.clock.advance(SPARK_POLLS_MS)
    return looks


def all_read(end: int, **more: Any) -> dict[str, Any]:
    return Positions(offsets={A0: end}, **more).to_json()


def test_a_topic_that_is_not_read_any_more_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(ManualClock(), 7)
    found = reader(monkeypatch, log, waits=False)
    strict = replace(found._options, fail_on_data_loss=True)
    found._plan = Planner(log, strict, clock=log.clock)
    start = Positions(offsets={A0: 5, ("old", 0): 3}).to_json()
    end = found.latestOffset(start, ReadAllAvailable())
    assert Positions.from_json(end).offsets == {A0: 7}
    (share,) = found.partitions(start, end)
    assert [item.records for item in share.value.input_partitions] == [
        OffsetRange(topic="a", partition=0, start=5, end=7)
    ]
    at_the_end = Positions(offsets={A0: 7, ("old", 0): 3}).to_json()
    assert found.latestOffset(at_the_end, ReadAllAvailable()) == at_the_end
    planned_before = Positions(offsets={A0: 7, ("old", 0): 4}).to_json()  # and not done when it was stopped
    (share,) = found.partitions(start, planned_before)
    assert [item.records.place for item in share.value.input_partitions] == [A0]


@pytest.mark.parametrize("waited", [{"behind": frozenset({("old", 0)})}, {"follows": {("old", 0): 9}}])
def test_what_waited_for_a_topic_that_is_not_read_any_more_goes_on(
    monkeypatch: pytest.MonkeyPatch, waited: dict[str, Any]
) -> None:
    """The task that buffers records of the other topic runs only if it is told something."""
    log = Log(ManualClock(), 7)
    found = reader(monkeypatch, log, waits=False)
    start = Positions(offsets={A0: 7, ("old", 0): 3}, **waited).to_json()
    end = found.latestOffset(start, ReadAllAvailable())
    assert Positions.from_json(end) == Positions(offsets={A0: 7})
    (share,) = found.partitions(start, end)
    assert [(item.records.place, item.tells) for item in share.value.input_partitions] == [(A0, True)]
    assert found.latestOffset(end, ReadAllAvailable()) == end
    planned_before = Positions(offsets={A0: 7, ("old", 0): 4}, **waited).to_json()
    assert not found.partitions(start, planned_before), "its results may be in the log, without those of the others"


def test_an_idle_query_looks_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(ManualClock(), 7)
    found = reader(monkeypatch, log)
    looks = looks_of(found, log, all_read(7), until_ms=60_000)
    assert looks <= 120
    # The offsets, the wait, and now and then which partitions there are.
    assert log.requests <= 3 * looks


def test_an_idle_query_commits_again_after_a_day(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Brokers forget its marker and its offsets a week after it committed them."""
    log, start = Log(ManualClock(), 7), all_read(7)
    (tmp_path / "commits").mkdir()

    def commit(number: int) -> None:
        done = tmp_path / "commits" / str(number)
        done.touch()
        os.utime(done, (log.clock.wall_ms() / 1_000,) * 2)

    commit(8)
    found = reader(monkeypatch, log, waits=False, sink=replace(SINK, checkpoint_location=str(tmp_path)))
    for _ in range(24):
        assert found.latestOffset(start, ReadAllAvailable()) == start
        log.clock.advance(HOUR_MS)
    end = found.latestOffset(start, ReadAllAvailable())
    assert end == all_read(7, clock=log.clock.wall_ms())
    assert not found.partitions(start, end)
    commit(9)
    for _ in range(24):
        assert found.latestOffset(end, ReadAllAvailable()) == end
        log.clock.advance(HOUR_MS)
    assert found.latestOffset(end, ReadAllAvailable()) != end


def test_a_record_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(ManualClock(), 7, comes_at_ms=10_300)
    looks_of(reader(monkeypatch, log), log, all_read(7), until_ms=60_000)
    assert log.clock.monotonic_ms() <= 10_300 + SPARK_POLLS_MS


def test_the_first_look_that_finds_nothing_returns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(ManualClock(), 7)
    found = reader(monkeypatch, log)
    for _ in range(2):
        assert found.latestOffset(all_read(6), ReadAllAvailable()) == all_read(7)
        found.latestOffset(all_read(7), ReadAllAvailable())
        assert log.clock.monotonic_ms() == 0
    looks_of(found, log, all_read(7), until_ms=5_000)
    assert log.clock.monotonic_ms() >= 5_000


def test_what_a_pace_holds_back_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(ManualClock(), 9)
    found = reader(monkeypatch, log, pace=Buffered())
    for _ in range(5):
        assert found.latestOffset(all_read(7), ReadAllAvailable()) == all_read(7)
    assert log.clock.monotonic_ms() == 0


def test_where_a_trigger_says_when_to_look_no_look_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(ManualClock(), 7)
    found = reader(monkeypatch, log, waits=False)
    for _ in range(5):
        found.latestOffset(all_read(7), ReadAllAvailable())
    assert log.clock.monotonic_ms() == 0


def test_the_wall_clock_comes_by_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    log = Log(clock, 7)
    found = reader(monkeypatch, log, clock_ms=1_000)
    start = all_read(7, clock=clock.wall_ms())
    looks_of(found, log, start, until_ms=60_000)
    assert 1_000 <= clock.monotonic_ms() <= 1_000 + SPARK_POLLS_MS
    assert log.requests < 30


def test_the_wall_clock_comes_by_after_it_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day ahead for one micro-batch, and then right again. A step of less than the interval changes nothing."""
    clock = ManualClock()
    found = reader(monkeypatch, Log(clock, 7), waits=False, clock_ms=1_000)
    ahead = all_read(7, clock=clock.wall_ms() + 86_400_000)
    assert found.latestOffset(ahead, ReadAllAvailable()) == all_read(7, clock=clock.wall_ms())
    ahead = all_read(7, clock=clock.wall_ms() + 900)
    assert found.latestOffset(ahead, ReadAllAvailable()) == ahead


def following(monkeypatch: pytest.MonkeyPatch, log: Log, *committed: Boundary) -> tuple[TopologyReader, list[Boundary]]:
    """What the group has committed, look after look."""
    found = reader(monkeypatch, log, follows=True, sink=SINK)
    told = list(committed)
    monkeypatch.setattr(source, "committed_boundary", lambda *_, **__: told.pop(0) if len(told) > 1 else told[0])
    return found, told


def test_what_follows_goes_as_far_as_the_other_one_has_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(ManualClock(), 50)
    waits = Boundary(offsets={A0: 20}, waiting={A0: 900})
    found, _ = following(monkeypatch, log, Boundary(offsets={A0: 10}), waits)
    first = found.latestOffset(found.initialOffset() | {"a": {"0": 0}}, ReadAllAvailable())
    assert (first["a"], first["@muted"], first["@follows"]) == ({"0": 10}, True, [])
    second = found.latestOffset(first, ReadAllAvailable())
    assert (second["a"], second["@follows"]) == ({"0": 20}, [["a", 0, 900]])
    before = log.clock.monotonic_ms()
    assert found.latestOffset(second, ReadAllAvailable()) == second
    assert log.clock.monotonic_ms() - before == source.FOLLOW_MS
    assert found.reportLatestOffset() is not None
    assert found.reportLatestOffset()["a"] == {"0": 20}  # type: ignore[index]
    # A repetition is told what its plan says, whatever is committed by now.
    input_partitions = [
        input_partition for item in found.partitions(first, second) for input_partition in item.value.input_partitions
    ]
    assert [
        (input_partition.records.start, input_partition.records.end, input_partition.paused)
        for input_partition in input_partitions
    ] == [(10, 20, 900)]


def test_the_first_micro_batch_after_the_switch_rewrites_the_changelogs_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(ManualClock(), 20)
    found = reader(monkeypatch, log, boundary=Boundary(offsets={A0: 20}), sink=SINK)
    followed = Positions(offsets={A0: 20}, replayed=True, follows={}).to_json()
    end = found.latestOffset(followed, ReadAllAvailable())
    assert "@follows" not in end
    assert [item.value.rewrites for item in found.partitions(followed, end)] == [True]
    assert found.latestOffset(end, ReadAllAvailable()) == end
    log.end = 30
    later = found.latestOffset(end, ReadAllAvailable())
    assert [item.value.rewrites for item in found.partitions(end, later)] == [False]


def test_that_a_partition_is_not_behind_any_more_is_told_also_if_its_records_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records of other partitions wait in tasks that were told that more follow."""
    log = Log(ManualClock(), 50)
    found = reader(monkeypatch, log)
    behind = Positions(offsets={A0: 20}, behind=frozenset({A0})).to_json()
    end = found.latestOffset(behind, ReadAllAvailable())
    assert (end["a"], "@behind" in end) == ({"0": 50}, False)
    log.first = 50  # by retention
    told = [one for item in found.partitions(behind, end) for one in item.value.input_partitions]
    assert [(one.records.start, one.records.end, one.behind, one.tells) for one in told] == [(50, 50, False, True)]


@pytest.mark.parametrize(
    ("stop", "first"),
    [(20, 0), (0, 0), (20, 20)],
    ids=["replayed", "nothing was processed", "retention removed all"],
)
def test_the_first_micro_batch_behind_a_rebuild_rewrites_the_changelogs_once(
    monkeypatch: pytest.MonkeyPatch, stop: int, first: int
) -> None:
    """Rows that the state does not have any more are in them, of the run before."""
    log = Log(ManualClock(), 20)
    found = reader(monkeypatch, log, boundary=Boundary(offsets={A0: stop}), sink=SINK)
    at = Positions(offsets={A0: first}, initial=True).to_json()
    rewrites: list[list[bool]] = []
    for _ in range(3):
        end = found.latestOffset(at, ReadAllAvailable())
        if end == at:
            break
        rewrites.append([item.value.rewrites for item in found.partitions(at, end)])
        assert [item.value.replayed for item in found.partitions(at, end)] == ["@muted" in end]
        at = end
    assert rewrites == ([[False], [True]] if first < stop else [[True]])
    log.end = 30
    later = found.latestOffset(at, ReadAllAvailable())
    assert [item.value.rewrites for item in found.partitions(at, later)] == [False]
