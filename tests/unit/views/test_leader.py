"""How long a version waits for the one that it is built beside, and what ends that."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from suiro.clock import ManualClock
from suiro.errors import TransientError, UnknownTopicError
from suiro.views.cuts import Cut
from suiro.views.pipeline.leader import LOOK_FOR_TOPIC_MS, STILL_MS, Leader, Step, VersionPace
from suiro.views.pipeline.pace import ask_throttle

A, B = ("a", 0), ("b", 0)


def cut(number: int, a: int, b: int = 0) -> Cut:
    return Cut(number=number, inputs={A: a, B: b}, outputs={0: number}, time_ms=number)


class World:
    """A leader's cuts topic, a clock, and a version that asks where to go."""

    def __init__(self, *cuts: Cut) -> None:
        self.clock = ManualClock()
        self.new: list[Cut] = list(cuts)
        self.failure: Exception | None = None
        self.polls = 0
        self._leader = Leader(self._poll, self.clock)

    def _poll(self) -> Sequence[Cut]:
        self.polls += 1
        if self.failure is not None:
            raise self.failure
        new, self.new = self.new, []
        return new

    def step(self, begin: int, end: int, b: int = 0) -> Step:
        return self._leader.step({A: begin, B: b}, {A: end, B: b}, None, unlimited=())


def test_it_waits_at_the_newest_cut_until_the_leader_has_been_still_for_long() -> None:
    world = World(cut(0, 10))
    assert world.step(0, 50).ends == {A: 10, B: 0}
    assert world.step(10, 50) == Step(ends={A: 10, B: 0}, waits=True)
    world.clock.advance(STILL_MS - 1)
    assert world.step(10, 50).ends[A] == 10
    world.clock.advance(1)
    assert world.step(10, 50).ends[A] == 50
    assert world.step(50, 60).ends[A] == 60, "it waits once, not for each record"
    world.new.append(cut(1, 70))
    assert world.step(60, 99).ends[A] == 70, "met again"
    assert world.step(70, 99).waits


def test_what_there_is_no_more_of_is_not_waited_for() -> None:
    world = World(cut(0, 10))
    assert not world.step(10, 10).waits
    world.clock.advance(100 * STILL_MS)
    assert world.step(10, 11).ends[A] == 10, "the leader has its time from when there is more"
    world.clock.advance(STILL_MS - 1)
    world.new.append(cut(1, 11))
    assert world.step(10, 20).ends[A] == 11
    world.clock.advance(1)
    assert world.step(11, 20).ends[A] == 11


def test_a_leader_without_a_cut_is_waited_for_as_well() -> None:
    world = World()
    assert world.step(0, 5) == Step(ends={A: 0, B: 0}, waits=True)
    world.clock.advance(STILL_MS)
    assert world.step(0, 5).ends[A] == 5


def test_a_leader_whose_topic_is_gone_leads_no_more_until_it_is_back() -> None:
    world = World(cut(0, 10))
    assert world.step(0, 50).ends[A] == 10
    world.failure = UnknownTopicError("gone", "UNKNOWN_TOPIC_OR_PARTITION")
    assert world.step(10, 50).ends[A] == 50
    polls = world.polls
    assert world.step(50, 60).ends[A] == 60
    assert world.polls == polls, "it does not ask for a topic that is gone again and again"
    world.clock.advance(LOOK_FOR_TOPIC_MS)
    world.failure, world.new = None, [cut(1, 65)]
    assert world.step(60, 99).ends[A] == 65


def test_while_kafka_is_away_what_is_known_is_true() -> None:
    world = World(cut(0, 10))
    world.step(0, 5)
    world.failure = TransientError("no leader")
    assert world.step(5, 50).ends[A] == 10


def test_cuts_of_a_leader_that_went_back_are_left_out() -> None:
    world = World(cut(0, 10, 10), cut(1, 12, 8), cut(2, 14, 12))
    assert [world.step(0, 13, b=0).ends[A]] == [10]
    assert world.step(10, 50, b=10).cut is None, "b has no more than 10"
    step = world._leader.step({A: 10, B: 10}, {A: 50, B: 50}, None, unlimited=())
    assert step.cut == cut(2, 14, 12)


def test_a_pace_goes_to_the_process_that_plans(tmp_path: Path) -> None:
    pace = pickle.loads(pickle.dumps(VersionPace(tmp_path, bootstrap_servers="h:1", settings={"client.id": "x"})))
    begins, ends = {A: 0}, {A: 100}
    assert pace.allowance(begins, ends, 10, unlimited=()).max_offsets == 10
    assert pace.allowance(begins, ends, None, unlimited=()).ends == ends
    ask_throttle(tmp_path, 0)
    assert pace.allowance(begins, ends, 10, unlimited=()).ends == begins


@pytest.mark.parametrize("limit", [None, 4])
def test_a_version_goes_to_the_newest_cut_that_its_limit_allows(limit: int | None, tmp_path: Path) -> None:
    pace = VersionPace(tmp_path, bootstrap_servers="h:1", leader_cuts_topic="v1.cuts")
    pace._leader = Leader(lambda: [cut(0, 4), cut(1, 50)], ManualClock())
    allowed = pace.allowance({A: 0, B: 0}, {A: 60, B: 0}, limit, unlimited=())
    assert (allowed.ends[A], allowed.max_offsets, allowed.behind) == (4 if limit else 50, None, frozenset())
