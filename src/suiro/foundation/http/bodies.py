"""Limits the memory for request bodies of one server.

Bytes count from the first byte received, before authentication, until the request is answered. When the limit is
reached, the incomplete body that began first is dropped. A client with an ordinary connection has finished before its
body is the oldest; a client that withholds half of a request loses it to new requests.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from suiro.foundation.http.refusals import Refusal


def _too_many() -> Refusal:
    again = {"retry-after": "1", "connection": "close"}
    return Refusal(503, "too many request bodies are in memory; try again", again)


class Body:
    """The memory held for one request. Call `close` when the request is answered."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self.size = 0
        self.given_up = False

    async def read(self, receive: Receive, max_bytes: int) -> bytes:
        """Read the whole body. Raises `Refusal`, and `ClientDisconnect`."""
        parts: list[bytes] = []
        self._bodies.unfinished[self] = None
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part = message.get("body", b"")
                if self.size + len(part) > max_bytes:
                    raise Refusal(413, f"The request body has more than {max_bytes} bytes")
                self._bodies.take(self, len(part))
                parts.append(part)
                if not message.get("more_body"):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        except asyncio.CancelledError:
            if not self.given_up:
                raise
            assert self._task is not None
            self._task.uncancel()
            raise _too_many() from None
        finally:
            self._bodies.unfinished.pop(self, None)

    def give_up(self) -> None:
        self.given_up = True
        self.close()
        assert self._task is not None
        self._task.cancel()

    def close(self) -> None:
        self._bodies.held -= self.size
        self.size = 0


class Bodies:
    """The bodies of one server. Use it on one event loop only."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self.held = 0
        self.unfinished: dict[Body, None] = {}  # in the order in which they began

    def take(self, body: Body, size: int) -> None:
        while self.held + size > self._limit:
            oldest = next(iter(self.unfinished), body)
            if oldest is body:
                raise _too_many()
            del self.unfinished[oldest]
            oldest.give_up()
        body.size += size
        self.held += size
