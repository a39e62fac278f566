"""Turns are bounded by time and by requests, and all that rest share one of the loop's."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from itertools import pairwise

import pytest

from suiro.broker.net.turns import REQUESTS_A_TURN, TURN_NS, Steps, Turns


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1

    def __call__(self) -> int:
        return self.now_ns


class Sender:
    """A connection with so many requests, each of which takes so long."""

    def __init__(self, turns: Turns, clock: Clock, requests: int, cost_ns: int) -> None:
        self.turns = turns
        self.clock = clock
        self.left = requests
        self.cost_ns = cost_ns
        self.turns_taken: list[int] = []

    def go_on(self) -> None:
        turn, handled = self.turns.begin(), 0
        while self.left:
            if turn.is_over():
                self.turns.rest(self)
                break
            self.left -= 1
            handled += 1
            self.clock.now_ns += self.cost_ns
        self.turns_taken.append(handled)


def in_loop(run: Callable[[asyncio.AbstractEventLoop], None], *, until: Callable[[], bool]) -> None:
    async def wait() -> None:
        run(asyncio.get_running_loop())
        while not until():
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(wait(), 60))


@pytest.mark.parametrize(
    ("cost_ns", "in_one_turn"),
    [(0, REQUESTS_A_TURN), (TURN_NS // 4, 4), (TURN_NS, 1), (100 * TURN_NS, 1)],
)
def test_a_turn_ends_by_its_requests_or_by_its_time(cost_ns: int, in_one_turn: int) -> None:
    clock = Clock()
    senders: list[Sender] = []

    def run(loop: asyncio.AbstractEventLoop) -> None:
        sender = Sender(Turns(loop, now_ns=clock), clock, 3 * in_one_turn, cost_ns)
        senders.append(sender)
        sender.go_on()

    in_loop(run, until=lambda: not senders[0].left)
    assert senders[0].turns_taken == [in_one_turn] * 3


def test_however_many_rest_others_wait_for_one_turn() -> None:
    """Between two runs of those that rest the loop comes round: that is when another client is answered."""
    clock = Clock()
    senders: list[Sender] = []
    rounds: deque[int] = deque()

    def run(loop: asyncio.AbstractEventLoop) -> None:
        turns = Turns(loop, now_ns=clock)
        senders.extend(Sender(turns, clock, 64, TURN_NS // 2) for _ in range(50))
        for sender in senders:
            turns.rest(sender)

        def another_client() -> None:
            rounds.append(clock.now_ns)
            loop.call_soon(another_client)

        loop.call_soon(another_client)

    in_loop(run, until=lambda: not any(sender.left for sender in senders))
    waits = [after - before for before, after in pairwise(rounds)]
    assert max(waits) <= 2 * TURN_NS
    shares = [sum(sender.turns_taken) for sender in senders]
    assert shares == [64] * 50


def steps_of(clock: Clock, count: int, *, fails: bool = False) -> Generator[None, None, str]:
    for _ in range(count):
        clock.now_ns += TURN_NS // 2
        yield
    if fails:
        raise RuntimeError("a fault")
    return "response"


def test_a_request_of_few_steps_is_answered_in_its_turn() -> None:
    clock = Clock()

    def run(loop: asyncio.AbstractEventLoop) -> None:
        steps = Steps(Turns(loop, now_ns=clock), steps_of(clock, 1), answer=failing, fail=failing)
        assert steps.run() == "response"

    def failing(*_: object) -> None:
        raise AssertionError("nobody waits")

    in_loop(run, until=lambda: True)


def test_a_request_of_many_steps_rests_between_them() -> None:
    clock = Clock()
    answers: list[str] = []
    failures: list[str] = []
    turns_of_others: list[int] = []

    def run(loop: asyncio.AbstractEventLoop) -> None:
        turns = Turns(loop, now_ns=clock)
        for fails in (False, True):
            steps = Steps(
                turns,
                steps_of(clock, 20, fails=fails),
                answer=answers.append,
                fail=lambda: failures.append("failed"),
            )
            assert steps.run() is None

        def another_client() -> None:
            turns_of_others.append(clock.now_ns)
            loop.call_soon(another_client)

        loop.call_soon(another_client)

    in_loop(run, until=lambda: bool(answers) and bool(failures))
    assert (answers, failures) == (["response"], ["failed"])
    waits = [after - before for before, after in pairwise(turns_of_others)]
    assert max(waits) <= 2 * TURN_NS


def test_one_that_fails_does_not_stop_the_others() -> None:
    clock = Clock()
    senders: list[Sender] = []
    errors: list[object] = []

    class Failing:
        def go_on(self) -> None:
            raise RuntimeError("a fault")

    def run(loop: asyncio.AbstractEventLoop) -> None:
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        turns = Turns(loop, now_ns=clock)
        senders.append(Sender(turns, clock, 3, TURN_NS))
        turns.rest(Failing())
        turns.rest(senders[0])

    in_loop(run, until=lambda: not senders[0].left)
    assert len(errors) == 1
