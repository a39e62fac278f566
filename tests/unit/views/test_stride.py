"""A long backlog goes in larger and larger micro-batches, which stay short."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from suiro.clock import ManualClock
from suiro.views.pipeline.leader import VersionPace
from suiro.views.pipeline.pace import LONGEST_MS, TIMES_MAX, Stride, ask_throttle
from suiro.views.settings import MAX_OFFSETS_PER_TRIGGER, RunSettings

A = ("a", 0)
FIRST = 1_000


class Backlog:
    """Micro-batches that take `cost_ms` and a ms for every `speed` records."""

    def __init__(self, cost_ms: int, speed: float) -> None:
        self.stride = Stride(FIRST)
        self.now_ms = 0
        self.position = 0
        self._cost_ms, self._speed = cost_ms, speed

    def micro_batch(self, share: float = 1.0) -> tuple[int, int]:
        """(the limit, how long it took); `share` of what is allowed is read."""
        limit = self.stride.limit(self.now_ms, self.position)
        read = int(limit * share)
        took = self._cost_ms + int(read / self._speed)
        self.position += read
        self.now_ms += took
        return limit, took


def test_it_doubles_up_to_its_largest_while_micro_batches_are_short() -> None:
    backlog = Backlog(cost_ms=100, speed=10)
    limits = [backlog.micro_batch()[0] for _ in range(6)]
    assert limits == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, 8 * FIRST, 8 * FIRST]
    assert limits[-1] == TIMES_MAX * FIRST


def test_no_micro_batch_is_planned_that_would_take_too_long() -> None:
    backlog = Backlog(cost_ms=0, speed=1)
    assert [backlog.micro_batch()[0] for _ in range(5)] == [1_000, 2_000, 4_000, 4_000, 4_000]
    assert 4_000 < LONGEST_MS < 8_000


def test_one_that_took_too_long_is_followed_by_half_of_it_and_never_less_than_the_first() -> None:
    backlog = Backlog(cost_ms=100, speed=10)
    for _ in range(4):
        backlog.micro_batch()
    backlog._cost_ms = LONGEST_MS + 1
    assert [backlog.micro_batch()[0] for _ in range(6)] == [8_000, 4_000, 2_000, 1_000, 1_000, 1_000]


def test_a_small_micro_batch_says_nothing_of_large_ones() -> None:
    backlog = Backlog(cost_ms=100, speed=10)
    assert [backlog.micro_batch(share=0.01)[0] for _ in range(5)] == [FIRST] * 5


def test_waiting_for_records_is_no_part_of_a_micro_batch() -> None:
    stride = Stride(FIRST)
    assert stride.limit(0, 0) == FIRST
    assert stride.limit(60_000, 0) == FIRST, "nothing was there to read"
    assert stride.limit(60_500, FIRST) == 2 * FIRST


@pytest.mark.parametrize("takes_more", [True, False])
def test_only_a_limit_that_nobody_set_is_stretched(takes_more: bool, tmp_path: Path) -> None:
    given = {} if takes_more else {"max.offsets.per.trigger": str(MAX_OFFSETS_PER_TRIGGER)}
    settings = RunSettings.parse(given)
    assert settings.max_offsets_per_trigger == MAX_OFFSETS_PER_TRIGGER
    clock = ManualClock()
    pace = VersionPace(tmp_path, bootstrap_servers="h:1", takes_more=settings.takes_more, clock=clock)
    first = MAX_OFFSETS_PER_TRIGGER
    assert pace.allowance({A: 0}, {A: 10**9}, first, unlimited=()).max_offsets == first
    clock.advance(500)
    expected = 2 * first if takes_more else first
    assert pace.allowance({A: first}, {A: 10**9}, first, unlimited=()).max_offsets == expected
    other = pickle.loads(pickle.dumps(pace))
    assert other._given == pace._given


def test_topics_without_a_limit_do_not_count(tmp_path: Path) -> None:
    clock = ManualClock()
    pace = VersionPace(tmp_path, bootstrap_servers="h:1", takes_more=True, clock=clock)
    table = ("table", 0)
    pace.allowance({A: 0, table: 0}, {A: 10**9, table: 10**6}, FIRST, unlimited={"table"})
    clock.advance(500)
    found = pace.allowance({A: 10, table: 10**6}, {A: 10**9, table: 10**6}, FIRST, unlimited={"table"})
    assert found.max_offsets == FIRST, "10 records were read of those that are limited"


def test_a_throttle_is_the_limit_where_there_is_one(tmp_path: Path) -> None:
    clock = ManualClock()
    pace = VersionPace(tmp_path, bootstrap_servers="h:1", takes_more=True, clock=clock)
    pace.allowance({A: 0}, {A: 10**9}, FIRST, unlimited=())
    clock.advance(100)
    assert pace.allowance({A: FIRST}, {A: 10**9}, FIRST, unlimited=()).max_offsets == 2 * FIRST
    ask_throttle(tmp_path, 100)
    pace.allowance({A: FIRST}, {A: 10**9}, FIRST, unlimited=())
    clock.advance(5_000)
    assert pace.allowance({A: FIRST}, {A: 10**9}, FIRST, unlimited=()).max_offsets == 500
