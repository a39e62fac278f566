"""Blocking work for programs that run on asyncio: in threads of its own, of which there are few.

A caller that is cancelled while it waits goes on at once. The thread ends at the time limit of its work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

THREADS = 8
"""Calls of one client that run at once. Further ones wait."""

P = ParamSpec("P")
T = TypeVar("T")


class InThreads:
    """The base of async clients that call a blocking client. `close` closes the blocking client."""

    def __init__(self, name: str, close: Callable[[], Any]) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"suiro-{name}")
        self._close = close

    async def _call(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        work = partial(function, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
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
