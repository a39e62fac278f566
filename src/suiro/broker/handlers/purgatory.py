"""The requests that wait for partitions to grow: Kafka's purgatory, for fetches."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)


class Growth(Protocol):
    """The partitions, or the fetch session, that a request waits for."""

    def wait(self, wake: Callable[[], None]) -> None: ...

    def stop_waiting(self, wake: Callable[[], None]) -> None: ...


class Delayed:
    """One waiting request. It ends exactly once: ready, out of time, failed, or cancelled.

    Growth only marks it; it looks again in a turn of its own, so that a produce into ten partitions that one
    fetch reads costs that fetch one look, after the produce has its answer.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        *,
        growth: Growth,
        is_ready: Callable[[], bool],
        finish: Callable[[], None],
        fail: Callable[[], None],
        wait_ms: int,
    ) -> None:
        """`fail` is called when one of the others raises: without it the client would wait."""
        self._loop = loop
        self._growth = growth
        self._is_ready = is_ready
        self._finish = finish
        self._fail = fail
        self._marked = False
        self._over = False
        growth.wait(self._mark)
        self._timer = loop.call_later(wait_ms / 1000, self._try, True)

    def cancel(self) -> None:
        """It is over: answered, failed, or the one who asked is gone."""
        if not self._over:
            self._over = True
            self._timer.cancel()
            self._growth.stop_waiting(self._mark)

    def _mark(self) -> None:
        if not self._marked:
            self._marked = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._marked = False
        self._try(False)

    def _try(self, is_last: bool) -> None:
        """Finish if it is ready or out of time: then, too, the answer has the current records."""
        if self._over:
            return
        try:
            if self._is_ready() or is_last:
                self.cancel()
                self._finish()
        except Exception:
            logger.exception("a request that waited failed; closing its connection")
            self.cancel()
            self._fail()
