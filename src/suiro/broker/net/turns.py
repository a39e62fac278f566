"""Turns of connections: one that has more to do than a turn allows continues after the others.

One thread serves all clients, and the cost of a request cannot be seen beforehand. A connection that has sent several
requests handles them until `REQUESTS_A_TURN` or `TURN_NS` is used up, and then rests. A request that may take long by
itself is handled in `Steps`, and rests like a connection. All that rest share one turn of the event loop: they continue
in the order in which they came to rest, until together they have used `TURN_NS`. Then the loop looks at the sockets. So
a client with one small request waits for one such turn, and not for all requests of others.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

from suiro.clock import stopwatch_ns

REQUESTS_A_TURN = 64
TURN_NS = 10_000_000
MOST_UNFINISHED = 16
"""Large requests that take long, at a time. In memory one takes thirty times its bytes, so the next ones wait as they
came."""
MOST_OF_A_CLIENT = 4
"""The same for one client, so that it does not hold back others."""


class Resting(Protocol):
    """A connection that has requests left to handle, or a request that has steps left."""

    def go_on(self) -> None:
        """Handle some more; rest again if that does not finish them."""
        ...


class Turn:
    """The requests and the time that one connection has used of its turn."""

    __slots__ = ("_began_ns", "_handled", "_now_ns")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._began_ns = 0
        self._handled = 0

    def is_over(self) -> bool:
        """Asked before each request: the first one of a turn is always handled."""
        handled = self._handled
        self._handled = handled + 1
        if handled == 0:
            self._began_ns = self._now_ns()
            return False
        return handled >= REQUESTS_A_TURN or self._now_ns() - self._began_ns >= TURN_NS


class Turns:
    """The connections that rest. One for all connections of a node."""

    def __init__(self, loop: AbstractEventLoop, *, now_ns: Callable[[], int] = stopwatch_ns) -> None:
        self._loop = loop
        self.now_ns = now_ns
        self._resting: deque[Resting] = deque()
        self._scheduled = False
        self._put_off: dict[Resting, None] = {}
        self.unfinished: Counter[str] = Counter()
        """The large requests of each client that have begun and are not answered."""

    def is_full(self, client: str) -> bool:
        """Whether a large request of this client must wait."""
        return self.unfinished.total() >= MOST_UNFINISHED or self.unfinished[client] >= MOST_OF_A_CLIENT

    def begin_large(self, client: str) -> None:
        self.unfinished[client] += 1

    def end_large(self, client: str) -> None:
        self.unfinished -= Counter((client,))
        put_off, self._put_off = self._put_off, {}
        for connection in put_off:
            self.rest(connection)

    def put_off(self, connection: Resting) -> None:
        """Let it go on when a large request has ended."""
        self._put_off[connection] = None

    def forget(self, connection: Resting) -> None:
        """It is closed: what is put off may wait for long."""
        self._put_off.pop(connection, None)

    def begin(self) -> Turn:
        return Turn(self.now_ns)

    def rest(self, connection: Resting) -> None:
        """Let it go on when those before it have."""
        self._resting.append(connection)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        began_ns = self.now_ns()
        self._scheduled = False
        try:
            for _ in range(len(self._resting)):
                self._resting.popleft().go_on()
                if self.now_ns() - began_ns >= TURN_NS:
                    break
        finally:  # whatever became of one, it is the turn of the others
            if self._resting and not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._run)


@dataclass(slots=True, eq=False)
class Steps:
    """One request, a step at a time: a generator that yields between two steps and returns the response."""

    turns: Turns
    steps: Generator[None, None, Any]
    _: KW_ONLY
    answer: Callable[[Any], None]
    """Takes the response if one turn was not enough."""
    fail: Callable[[], None]
    """Called where a later turn raises."""
    later_ns: int = 0
    """The time of its turns but the first."""

    def run(self) -> Any:
        """One turn of it. The response; None: it comes later."""
        turn = self.turns.begin()
        try:
            while not turn.is_over():
                next(self.steps)
        except StopIteration as done:
            return done.value
        self.turns.rest(self)
        return None

    def go_on(self) -> None:
        began_ns = self.turns.now_ns()
        try:
            response = self.run()
        except Exception:  # noqa: BLE001 - `fail` logs it and closes the connection
            self.fail()
            return
        self.later_ns += self.turns.now_ns() - began_ns
        if response is not None:
            self.answer(response)
