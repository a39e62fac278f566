"""Tells work in threads that nobody waits for its answer any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive


@asynccontextmanager
async def watching_client(receive: Receive, gone: threading.Event) -> AsyncIterator[None]:
    """Sets `gone` when the client of a request disconnects, and at the end, which also comes when the server stops. The
    body must have been read."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    watching = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        gone.set()
        watching.cancel()
