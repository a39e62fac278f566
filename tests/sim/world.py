"""One virtual clock, one source of chance, and processes that take turns: nothing else decides what happens when.

- An event runs at its time, alone and to its end; events of the same time run in the order they were made.
- A process is ordinary blocking code in a greenlet. It gives the turn back only where it waits.
- A killed process is unwound at once where it waits (`Killed`), and is refused every further wait: nothing that its
  handlers do on the way out can reach anybody.
- The story is what happened, in order. It costs little while nobody reads it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

import greenlet

START_MS = 1_700_000_000_000


class Killed(BaseException):
    """The process is gone. Not an Exception: no handler may take it for an error of its work."""


class Timer:
    """An event to come. Has what asyncio's handles have."""

    __slots__ = ("_action", "_arguments", "cancelled_", "time")

    def __init__(self, time: int, action: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.time = time
        self.cancelled_ = False
        self._action, self._arguments = action, arguments

    def cancel(self) -> None:
        self.cancelled_ = True

    def cancelled(self) -> bool:
        return self.cancelled_

    def when(self) -> float:
        return self.time / 1000

    def run(self) -> None:
        self._action(*self._arguments)


class World:
    """Time, chance, turns. Also a `suiro.clock.Clock`, for whoever lives in it."""

    def __init__(self, seed: int | str) -> None:
        self.random = Random(seed)
        self.now = 0
        self.current: Process | None = None
        self.after_event: Callable[[], None] = lambda: None
        self.story: list[tuple[int, str, tuple[Any, ...]]] = []
        self.events = 0
        self._heap: list[tuple[int, int, Timer]] = []
        self._made = 0

    # A clock

    def wall_ms(self) -> int:
        return START_MS + self.now

    def monotonic_ms(self) -> int:
        return self.now

    def sleep_ms(self, ms: int) -> None:
        assert self.current is not None, "only a process can sleep"
        self.current.wait(ms)

    # Events

    def after(self, ms: int, action: Callable[..., Any], *arguments: Any) -> Timer:
        timer = Timer(self.now + max(0, ms), action, arguments)
        self._made += 1
        heapq.heappush(self._heap, (timer.time, self._made, timer))
        return timer

    def run(self, until: Callable[[], bool], *, deadline: int) -> bool:
        """Lets events happen until the condition holds (True) or none is left before the deadline (False)."""
        heap = self._heap
        while not until():
            if not heap or heap[0][0] > deadline:
                self.now = max(self.now, deadline)
                return False
            time, _, timer = heapq.heappop(heap)
            if timer.cancelled_:
                continue
            self.now = time
            self.events += 1
            timer.run()
            self.after_event()
        return True

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def tell(self, words: str, *arguments: Any) -> None:
        """`words` is a template for `arguments`, put together only if the story is read."""
        self.story.append((self.now, words, arguments))


class Process:
    """Blocking code that lives in the world: `run` begins it, `ended` hears how it went."""

    def __init__(
        self,
        world: World,
        name: str,
        work: Callable[[], None],
        ended: Callable[[Process, BaseException | None], None],
    ) -> None:
        self.world, self.name = world, name
        self.alive = True
        self.on_death: list[Callable[[], None]] = []  # what the operating system does for the dead
        self._ended = ended
        self._waiting: Timer | None = None
        self._listening = False
        self._paused_until = 0
        self._greenlet = greenlet.greenlet(self._life)
        self._work = work
        self._hub: greenlet.greenlet | None = None
        world.after(0, self._resume)

    # From within

    def wait(self, ms: int, *, listening: bool = False) -> None:
        """Gives the turn back for so long; while `listening`, until `wake` at the latest."""
        if not self.alive:
            raise Killed
        assert self.world.current is self
        self._listening = listening
        self._waiting = self.world.after(ms, self._resume)
        assert self._hub is not None
        self._hub.switch()
        if not self.alive:
            raise Killed

    # From without

    def wake(self) -> None:
        """What it listens for may be there."""
        if self.alive and self._listening and self._waiting is not None:
            self._listening = False
            self._waiting.cancel()
            self._waiting = self.world.after(0, self._resume)

    def pause(self, ms: int) -> None:
        """It is alive and does nothing, as a process that swaps or whose machine was suspended."""
        self._paused_until = max(self._paused_until, self.world.now + ms)

    def kill(self) -> None:
        if self.alive:
            self.alive = False
            if self._waiting is not None:
                self._waiting.cancel()
            if self._greenlet:  # it has begun and not ended
                self._switch()
            else:
                self._ended(self, Killed())
            for action in self.on_death:
                action()

    def _resume(self) -> None:
        if not self.alive:
            return
        left = self._paused_until - self.world.now
        if left > 0:
            if self._waiting is not None:
                self._waiting.cancel()
            self._waiting = self.world.after(left, self._resume)
            return
        self._switch()

    def _switch(self) -> None:
        before, self.world.current = self.world.current, self
        # The turn is the hub's again when it ends, too, whoever made it: a process may start another one.
        self._hub = self._greenlet.parent = greenlet.getcurrent()
        try:
            self._greenlet.switch()
        finally:
            self.world.current = before

    def _life(self) -> None:
        failure: BaseException | None = None
        try:
            self._work()
        except Killed as killed:
            failure = killed
        except Exception as error:
            failure = error
        was_alive, self.alive = self.alive, False
        if was_alive:
            for action in self.on_death:
                action()
        self._ended(self, failure)
