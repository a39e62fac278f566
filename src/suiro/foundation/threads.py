"""Threads: a result that another one waits for, a thread that looks after things, blocking work for asyncio, and the
event loop of a thread that serves. Light to import.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event, Lock, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

THREADS = 8
"""Calls of one client that run at once. Further ones wait."""

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger(__name__)


def settle(future: Future[T], call: Callable[[], T]) -> None:
    """Gives the future the result of the call, or its error."""
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - who waits for the future gets it
        future.set_exception(error)
    else:
        future.set_result(result)


class Regularly(Generic[T]):
    """`work` gets all things that are needed now, every `every_s` seconds. The thread starts with the first of them, so
    what is done sooner costs nothing."""

    def __init__(self, name: str, every_s: float, work: Callable[[list[T]], None]) -> None:
        self._name = name
        self._every_s = every_s
        self._work = work
        self._lock = Lock()
        self._things: list[T] = []
        self._thread: Thread | None = None

    @contextmanager
    def during(self, things: Collection[T]) -> Iterator[None]:
        """They are needed until the block ends."""
        with self._lock:
            self._things += things
            if self._things and self._thread is None:
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                for thing in things:
                    self._things.remove(thing)

    def _run(self) -> None:
        never = Event()
        while not never.wait(self._every_s):
            with self._lock:
                things = list(self._things)
            try:
                self._work(things)
            except Exception:  # noqa: BLE001 - whoever comes next needs the thread
                _log.exception("%s failed; it goes on", self._name)


class InThreads:
    """The base of async clients that call a blocking client, in threads of its own. `close` closes the blocking client.

    A caller that is cancelled while it waits goes on at once. The thread ends at the time limit of its work.
    """

    def __init__(self, name: str, close: Callable[[], Any]) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"suiro-{name}")
        self._close = close

    async def _call(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        import asyncio

        work = partial(function, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        import asyncio

        try:
            await asyncio.to_thread(self._close)
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def new_event_loop() -> AbstractEventLoop:
    """uvloop's where it is installed, else that of the standard library. uvloop is not in the base installation because
    of its size (14 MB); extra [spark] brings it."""
    try:
        import uvloop
    except ModuleNotFoundError:
        import asyncio

        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
