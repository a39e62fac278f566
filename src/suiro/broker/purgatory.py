"""Where requests wait for partitions to grow: Kafka's purgatory, for fetches."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence

from suiro.broker.topics import Partition


class Delayed:
    """One waiting request. It ends exactly once: ready, out of time, or cancelled.

    Growth only marks it; it looks again in a turn of its own, so that a produce into ten partitions that one
    fetch reads costs that fetch one look, after the produce has its answer.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        *,
        partitions: Sequence[Partition],
        is_ready: Callable[[], bool],
        finish: Callable[[], None],
        wait_ms: int,
    ) -> None:
        self._loop = loop
        self._partitions = partitions
        self._is_ready = is_ready
        self._finish = finish
        self._marked = False
        self._over = False
        for partition in partitions:
            partition.waiters[self] = self._mark
        self._timer = loop.call_later(wait_ms / 1000, self._expire)

    def cancel(self) -> None:
        """The one who asked is gone."""
        self._end()

    def _mark(self) -> None:
        if not self._marked:
            self._marked = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._marked = False
        if not self._over and self._is_ready():
            self._end()
            self._finish()

    def _expire(self) -> None:
        if not self._over:
            self._is_ready()  # the answer carries what is there now, and today's high watermark
            self._end()
            self._finish()

    def _end(self) -> None:
        self._over = True
        self._timer.cancel()
        for partition in self._partitions:
            partition.waiters.pop(self, None)
