"""Threads for calls that the event loop must not wait for: to a remote store, to decompress records, to sync a log.

The threads are daemons: a call that never returns does not keep the process from ending.
"""

from __future__ import annotations

import queue
import threading
from asyncio import AbstractEventLoop, Future
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from suiro.log import PartitionLog

T = TypeVar("T")


class Workers:
    """At most `count` calls run at a time, the others wait in order."""

    def __init__(self, loop: AbstractEventLoop, *, name: str, count: int) -> None:
        self._loop = loop
        self._name = name
        self._count = count
        self._unfinished = 0
        """Calls that a thread has or will get, also those whose callers are gone: one may keep its thread for long."""
        self._threads = 0
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()

    def resize(self, count: int) -> None:
        """Change the number of calls at a time. Threads that are too many end after their calls."""
        self._count = count
        while self._threads > count:
            self._threads -= 1
            self._calls.put(None)

    async def run(self, call: Callable[[], T]) -> T:
        """Returns the result of `call`, or raises its error. Cancelling stops a call only if it has not begun."""
        future: Future[T] = self._loop.create_future()
        self._calls.put((call, future))
        self._unfinished += 1
        if self._threads < min(self._unfinished, self._count):
            self._threads += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        return await future

    def close(self) -> None:
        """End the threads, after the calls that they have begun."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while True:
            item = self._calls.get()
            if item is None:
                return
            call, future = item
            outcome: tuple[Any, BaseException | None] = None, None
            try:
                if not future.cancelled():
                    outcome = call(), None
            except BaseException as error:  # noqa: BLE001 - the caller of the thread gets it
                outcome = None, error
            try:
                self._loop.call_soon_threadsafe(self._settle, future, *outcome)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

    def _settle(self, future: Future[Any], result: Any, error: BaseException | None) -> None:
        self._unfinished -= 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


async def sync(log: PartitionLog, run: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
    """Sync what a log has now to the disk. `run` calls a function in a thread.

    Raises OSError. If the sync failed, the log is offline: the system may have dropped the pages and report success the
    next time, when callers remove the only other copy. Raises StorageError for a log that is offline or closed.
    """
    target = log.log_end_offset
    while log.recovery_point < target:
        log.check_open()
        job = log.flush_job()
        try:
            await run(job.run)
        except OSError as error:
            log.take_offline(f"cannot sync to disk: {error}")
            raise
        log.flushed(job.end_offset)
