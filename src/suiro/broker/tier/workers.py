"""Threads for work that waits for the remote store, so that the event loop does not.

The threads are daemons: a store that never answers does not keep the process from ending. Whatever they were doing
then is as after a crash, and cleaned up at the next start.
"""

from __future__ import annotations

import queue
import threading
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from typing import Any, TypeVar

from suiro.clock import Clock
from suiro.log import PartitionLog
from suiro.log.tier import RemoteStoreError

T = TypeVar("T")


class Workers:
    """At most `count` calls run at a time, the others wait in order."""

    def __init__(self, loop: AbstractEventLoop, *, name: str, count: int) -> None:
        self._loop = loop
        self._name = name
        self._count = count
        self._waiting = 0
        self._threads = 0
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()

    async def run(self, call: Callable[[], T]) -> T:
        """What `call` returns or raises. Who stops waiting does not stop the call."""
        future: Future[T] = self._loop.create_future()
        self._calls.put((call, future))
        self._waiting += 1
        if self._threads < min(self._waiting, self._count):
            self._threads += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        try:
            return await future
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """The threads end after the calls that they have begun."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while True:
            item = self._calls.get()
            if item is None:
                return
            call, future = item
            outcome: tuple[Any, BaseException | None]
            try:
                outcome = call(), None
            except BaseException as error:
                outcome = None, error
            try:
                self._loop.call_soon_threadsafe(_settle, future, *outcome)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return


def _settle(future: Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


async def sync(log: PartitionLog, workers: Workers) -> None:
    """Have what was appended to a log on the disk.

    Raises OSError; where it was the sync that failed, the log is offline, for the next one might succeed with the
    bytes gone, and what relies on it here removes the only other copy.
    """
    synced, target = -1, log.log_end_offset
    while synced < target:
        job = log.flush_job()
        try:
            await workers.run(job.run)
        except OSError as error:
            log.take_offline(f"cannot sync to disk: {error}")
            raise
        synced = job.end_offset
        log.flushed(synced)


class RateLimit:
    """So many bytes a second, over all threads together; called before the bytes are moved."""

    def __init__(self, clock: Clock, limit: Callable[[], int]) -> None:
        self._clock = clock
        self._limit = limit
        self._lock = threading.Lock()
        self._free_at_ms = 0.0
        self._stopping = threading.Event()

    def __call__(self, size: int) -> None:
        """Wait for the turn of these bytes. Raises RemoteStoreError when the node stops."""
        with self._lock:
            now = self._clock.monotonic_ms()
            begin = max(self._free_at_ms, now)
            self._free_at_ms = begin + 1000 * size / self._limit()
        if self._stopping.wait((begin - now) / 1000):
            raise RemoteStoreError("the node stops")

    def stop(self) -> None:
        self._stopping.set()
