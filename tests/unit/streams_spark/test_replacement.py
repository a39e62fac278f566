"""Follow, fence, switch: whoever dies at whatever moment, each record is written once, first by the old topology and
then by the new one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.share import examples

from suiro.client import EARLIEST
from suiro.clock import ManualClock
from suiro.errors import AbortableError, FatalError, FencedError, ReplacedError, TransientError
from suiro.spark import MARKER_TOPIC, Destination, Positions, SinkOptions
from suiro.spark.checkpoint import read_planned
from suiro.spark.committer import Committer, MicroBatch, read_marker
from suiro.spark.decide import MissingCheckpoint, Plan
from suiro.streams.errors import CheckpointError
from suiro.streams_spark.rebuild import Boundary, boundary_of, settled
from suiro.streams_spark.replacement import (
    CAUGHT_UP_S,
    Following,
    begin_to_follow,
    follows,
    require_not_replaced,
    switch,
)
from tests.unit.spark.kafka_double import Committed, KafkaDouble, Place, Producer

IN, OUT = ("in", 0), ("out", 0)
APP = Destination(application_id="app", missing_checkpoint=MissingCheckpoint.BEGIN)
SINK = SinkOptions.parse({"kafka.bootstrap.servers": "h:1", "application.id": "app"})
TOPICS = ("in",)


class Kafka(KafkaDouble):
    """Also gives all offsets of a group, and the log's bounds."""

    end = 0

    def offset_fetch(
        self, group: str, partitions: Iterable[Place] | None = None, *, require_stable: bool = True
    ) -> Mapping[Place, Committed | None]:
        if partitions is not None:
            return super().offset_fetch(group, partitions, require_stable=require_stable)
        self.call("offset_fetch")
        return {place: found for (name, place), found in self.offsets.items() if name == group}

    def list_offsets(self, wanted: Mapping[Place, int]) -> Mapping[Place, Any]:
        return {place: SimpleNamespace(offset=0 if what == EARLIEST else self.end) for place, what in wanted.items()}


class PowerCutError(BaseException):
    """The process is gone."""


@dataclass
class Rows:
    rows: list[str]

    @property
    def partitions(self) -> list[Place]:
        return [OUT] if self.rows else []

    def batches(self) -> Iterator[tuple[str, int, str, int]]:
        for row in self.rows:
            yield (*OUT, row, 1)


class Process:
    """What Spark and the runner do: plan, note the plan, commit to Kafka, note that it is done."""

    def __init__(self, kafka: Kafka, checkpoint: Path, name: str) -> None:
        self.kafka, self.checkpoint, self.name = kafka, checkpoint, name
        self.runs = 0
        self.committer: Committer | None = None
        self.boundary: Boundary | None = None
        self.reach: Callable[[str], None] = lambda point: None

    def start(self, *, replace: bool = False) -> None:
        self.runs += 1
        if replace:
            begin_to_follow(self.kafka, SINK, TOPICS, self.checkpoint)
        self.is_following = follows(self.kafka, SINK, TOPICS, self.checkpoint)
        if not self.is_following:
            require_not_replaced(self.kafka, SINK, self.checkpoint)
            self.boundary = Boundary.load(self.checkpoint)
        self.committer = Committer(self.kafka, APP, clock=ManualClock(), reach=lambda point, number: self.reach(point))
        for folder in ("offsets", "commits"):
            (self.checkpoint / folder).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": f"query of {self.name}"}))

    def die(self) -> None:
        self.committer = None

    def position(self, number: int) -> Positions:
        planned = read_planned(str(self.checkpoint), number)
        return Positions(offsets={IN: 0}) if planned is None else planned.positions[0]

    def micro_batch(self) -> bool:
        """False where there is nothing to do."""
        assert self.committer is not None
        done = max((int(item.name) for item in (self.checkpoint / "commits").iterdir()), default=-1)
        number = done + 1
        before = self.position(done)
        if not (self.checkpoint / "offsets" / str(number)).exists():
            planned = self._planned(before)
            if planned is None:
                return False
            text = json.dumps({**planned.to_json(), "@ids": {"in": "1"}})
            (self.checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{text}")
        self.reach("planned")
        after = self.position(number)
        if not self.is_following:
            self._commit(number, before, after)
        self.reach("in Kafka")
        (self.checkpoint / "commits" / str(number)).touch()
        return True

    def _planned(self, before: Positions) -> Positions | None:
        at = before.offsets[IN]
        if self.is_following:
            end = self.kafka.offsets["app", IN].offset
            follows = {} if end < self.kafka.end else None
            return Positions(offsets={IN: end}, replayed=True, follows=follows or {}) if end > at else None
        stop = self.kafka.end if self.boundary is None else max(self.boundary.offsets[IN], at)
        if self.boundary is not None and at < stop:
            return Positions(offsets={IN: stop}, replayed=True)
        if at == self.kafka.end and before.follows is None:
            return None
        return Positions(offsets={IN: self.kafka.end})

    def _commit(self, number: int, before: Positions, after: Positions) -> None:
        assert self.committer is not None
        planned = read_planned(str(self.checkpoint), number)
        earlier = read_planned(str(self.checkpoint), number - 1)
        assert planned is not None
        rows = range(before.offsets[IN], after.offsets[IN])
        kept = settled([after], dict(after.offsets), [], self.boundary)
        self.committer.process(
            MicroBatch(
                plan=Plan(
                    batch_id=number,
                    lineage=f"query of {self.name}",
                    run_id=f"{self.name} {self.runs}",
                    start_digest="" if earlier is None else earlier.digest,
                    end_digest=planned.digest,
                ),
                writes=Rows([] if after.replayed else [f"{self.name} {row}" for row in rows]),
                source_offsets={place: offset for place, (offset, _) in kept.items()},
            )
        )

    def switch(self) -> bool:
        if (self.checkpoint / "commits").exists() and not any((self.checkpoint / "commits").iterdir()):
            return False
        done = switch(self.kafka, SINK, TOPICS, self.checkpoint, reach=lambda point, number: self.reach(point))
        if done:
            self.start()
        return done


class World:
    """An old process that commits, a new one that replaces it, and what befalls them."""

    def __init__(self, directory: Path) -> None:
        self.kafka = Kafka()
        self.old = Process(self.kafka, directory / "old", "old")
        self.new = Process(self.kafka, directory / "new", "new")
        self.old.start()
        self.arrive(5)
        self.old.micro_batch()
        self.new.start(replace=True)

    def arrive(self, count: int) -> None:
        self.kafka.end += count

    def act(self, process: Process, call: Callable[[], object]) -> None:
        """As its supervisor sees it: whatever it ended of, it is started again, unless that is refused."""
        try:
            if process.committer is None:
                process.start()
            call()
        except ReplacedError:
            process.die()
            assert process is self.old
        except (FatalError, FencedError, PowerCutError):
            process.die()
        except TransientError:
            pass

    def step_of_old(self) -> None:
        self.act(self.old, self.old.micro_batch)

    def finish(self) -> None:
        self.kafka.faults = []
        self.new.reach = self.old.reach = lambda point: None
        if self.new.committer is None:
            self.new.start()
        for _ in range(20):
            while self.new.micro_batch():
                pass
            if self.new.is_following:
                self.new.switch()
        assert not self.new.is_following
        self.arrive(3)
        self.step_of_old()
        # Fenced between a start and its first commit it ends once, as a driver with a rival does.
        for _ in range(3):
            self.act(self.new, self.new.micro_batch)
        self.check()

    def check(self) -> None:
        written = [row.split() for _, _, row in self.kafka.records]
        assert sorted(int(number) for _, number in written) == list(range(self.kafka.end))
        first = min(int(number) for name, number in written if name == "new")
        assert all((name == "new") == (int(number) >= first) for name, number in written)
        with pytest.raises(ReplacedError):
            self.old.start()


NEW_POINTS = (
    "before_switch",
    "after_switch_fence",
    "after_switch",
    "after_switch_boundary",
    "planned",
    "in Kafka",
)
COMMIT_POINTS = ("before_fence", "after_fence", "after_produce", "after_commit_offsets", "after_end")
FAULTS = [(call, when) for call in ("init", "commit_offsets", "end") for when in ("lost request", "lost answer")]


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_each_record_is_written_once_whoever_dies_when(tmp_path_factory: Any, data: Any) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    points = st.sampled_from([*NEW_POINTS, *COMMIT_POINTS])
    for _ in range(data.draw(st.integers(1, 8))):
        what = data.draw(st.sampled_from(["arrive", "old", "new", "switch", "switch", "fault", "kill"]))
        if what == "arrive":
            world.arrive(data.draw(st.integers(1, 4)))
        elif what == "old":
            world.step_of_old()
        elif what == "new":
            world.act(world.new, world.new.micro_batch)
        elif what == "switch":
            # The other one does something in the middle of it, or it ends there.
            world.arrive(data.draw(st.integers(0, 2)))
            event = data.draw(st.sampled_from([world.step_of_old, killed, None]))
            if event is not None:
                world.new.reach = at(data.draw(st.sampled_from(NEW_POINTS[:4])), event, world.new)
            world.act(world.new, lambda: world.new.is_following and world.new.switch())
        elif what == "fault":
            world.kafka.faults.append(data.draw(st.sampled_from(FAULTS)))
        else:
            process = data.draw(st.sampled_from([world.old, world.new]))
            process.reach = at(data.draw(points), killed, process)
    world.finish()


def killed() -> None:
    raise PowerCutError


def at(point: str, call: Callable[[], None], process: Process) -> Callable[[str], None]:
    """Once."""

    def reach(reached: str) -> None:
        if reached == point:
            process.reach = lambda point: None
            call()

    return reach


@pytest.fixture(params=[True, False], ids=["v2", "v1"], autouse=True)
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaDouble, "is_v2", request.param)


def test_a_rival_that_fences_in_between_is_tried_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.new.micro_batch()
    world.arrive(2)
    world.new.reach = at("after_switch_fence", world.step_of_old, world.new)
    assert not world.new.switch()
    assert Boundary.load(world.new.checkpoint) is None
    assert follows(world.kafka, SINK, TOPICS, world.new.checkpoint)
    assert world.new.switch()
    assert Boundary.load(world.new.checkpoint) == Boundary(offsets={IN: 7})
    world.finish()


def test_a_rival_that_is_in_the_middle_of_its_fence_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first InitProducerId has aborted the transaction, its second one has not come: INVALID_TXN_STATE, in V2."""
    world = World(tmp_path)
    world.new.micro_batch()
    world.arrive(2)

    def aborted(producer: Producer, *, commit: bool) -> None:
        world.kafka.time_out(APP.transactional_id)
        raise AbortableError("the transaction is not in a state that allows this", "INVALID_TXN_STATE")

    with monkeypatch.context() as patch:
        patch.setattr(Producer, "end", aborted)
        assert not world.new.switch()
    assert follows(world.kafka, SINK, TOPICS, world.new.checkpoint)
    world.step_of_old()
    assert world.new.switch()
    world.finish()


def test_a_lost_answer_to_the_switch_is_no_second_switch(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.new.micro_batch()
    world.kafka.faults = [("end", "lost answer")]
    with pytest.raises(TransientError):
        world.new.switch()
    assert not follows(world.kafka, SINK, TOPICS, world.new.checkpoint)
    assert Boundary.load(world.new.checkpoint) == Boundary(offsets={IN: 5})
    world.new.start()
    world.finish()


def test_what_follows_asks_only_for_offsets(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka.calls.clear()
    world.new.start(replace=True)
    world.arrive(2)
    world.new.micro_batch()
    assert set(world.kafka.calls) == {"offset_fetch"}


def test_the_first_micro_batch_after_the_switch_comes_without_a_record(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.new.micro_batch()
    assert world.new.switch()
    assert world.new.micro_batch()
    assert not world.new.micro_batch()


def test_there_must_be_something_to_replace_and_an_empty_place_for_it(tmp_path: Path) -> None:
    kafka = Kafka()
    with pytest.raises(CheckpointError, match=r"nothing to replace.*Start it without --replace"):
        begin_to_follow(kafka, SINK, TOPICS, tmp_path)
    kafka.offsets["app", IN] = Committed(3, "")
    with pytest.raises(CheckpointError, match=r"in-0 ends at 0 and was read up to 3"):
        begin_to_follow(kafka, SINK, TOPICS, tmp_path / "new")
    kafka.end = 3
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    with pytest.raises(CheckpointError, match=r"has the state of 'app' already.*another, empty state directory"):
        begin_to_follow(kafka, SINK, TOPICS, tmp_path)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "suiro-replace.json").write_text('{"version": 2}')
    with pytest.raises(CheckpointError, match="format 2"):
        begin_to_follow(kafka, SINK, TOPICS, tmp_path / "new")


def test_a_checkpoint_that_has_written_nothing_is_not_taken_for_a_replaced_one(tmp_path: Path) -> None:
    """A rebuild that was killed in its first micro-batch."""
    world = World(tmp_path)
    third = Process(world.kafka, tmp_path / "third", "third")
    third.start()
    require_not_replaced(world.kafka, SINK, third.checkpoint)
    assert boundary_of  # the rebuild's own checks follow
    marker = read_marker(world.kafka, APP, stable=True)
    assert marker.lineage == "query of old"
    assert ("app", (MARKER_TOPIC, 0)) in world.kafka.offsets


def test_what_was_committed_a_while_ago_is_caught_up_with() -> None:
    following = Following()
    following.see(0, {IN: 100}, None)
    assert not following.has_caught_up
    following.see(1_000, {IN: 110}, Positions(offsets={IN: 50}))
    assert (following.lag_records, following.has_caught_up) == (60, False)
    following.see(5_000, {IN: 150}, Positions(offsets={IN: 100}))
    assert following.lag_ms == 5_000
    assert following.has_caught_up
    following.see(20_000, {IN: 300}, Positions(offsets={IN: 110}))
    assert following.lag_ms == 19_000
    assert not following.has_caught_up
    following.see(20_500, {IN: 300}, Positions(offsets={IN: 300}))
    assert (following.lag_records, following.lag_ms) == (0, 0)
    assert CAUGHT_UP_S < 19
