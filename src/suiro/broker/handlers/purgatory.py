"""The requests that wait for partitions to grow: Kafka's purgatory, for fetches."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

logger = logging.getLogger(__name__)


class Growth(Protocol):
    """The partitions, or the fetch session, that a request waits for."""

    def wait(self, wake: Callable[[], None]) -> None: ...

    def stop_waiting(self, wake: Callable[[], None]) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Delayed:
    """One waiting request. It ends exactly once: ready, out of time, failed, or cancelled.

    Growth only marks it; it looks again in a turn of its own, so that a produce into ten partitions that one
    fetch reads costs that fetch one look, after the produce has its answer.
    """

    loop: AbstractEventLoop
    growth: Growth
    is_ready: Callable[[], bool]
    finish: Callable[[], None]
    fail: Callable[[], None]
    """Called when one of the others raises: without it the client would wait."""
    wait_ms: int
    _marked: bool = False
    _over: bool = False
    _timer: TimerHandle = field(init=False)

    def __post_init__(self) -> None:
        self.growth.wait(self._mark)
        self._timer = self.loop.call_later(self.wait_ms / 1000, self._try, True)

    def cancel(self) -> None:
        """It is over: answered, failed, or the one who asked is gone."""
        if not self._over:
            self._over = True
            self._timer.cancel()
            self.growth.stop_waiting(self._mark)

    def _mark(self) -> None:
        if not self._marked:
            self._marked = True
            self.loop.call_soon(self._look)

    def _look(self) -> None:
        self._marked = False
        self._try(False)

    def _try(self, is_last: bool) -> None:
        """Finish if it is ready or out of time: then, too, the answer has the current records."""
        if self._over:
            return
        try:
            if self.is_ready() or is_last:
                self.cancel()
                self.finish()
        except Exception:
            logger.exception("a request that waited failed; closing its connection")
            self.cancel()
            self.fail()
