"""How much of requests' bodies a server holds, and for whom.

Bytes count from the first that comes, before anybody is known by a password or a signature, until the request is
answered. Where they become too many, the body that has been on its way for longest is given up: whoever sends at an
ordinary pace is through before that is theirs, and whoever holds half of a request back loses it to those who come.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive

__all__ = ["Bodies", "Body", "CutOffError", "TooLargeError", "TooManyError"]


class TooLargeError(Exception):
    """Of one request."""


class TooManyError(Exception):
    """Of all requests together."""


class CutOffError(Exception):
    """Its sender is gone."""


class Body:
    """What is held for one request. `close` it once that is answered."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self.size = 0
        self.given_up = False

    async def read(self, receive: Receive, max_bytes: int) -> bytes:
        """All of it. Raises the errors above."""
        parts: list[bytes] = []
        self._bodies.unfinished[self] = None
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise CutOffError
                part = message.get("body", b"")
                if self.size + len(part) > max_bytes:
                    raise TooLargeError
                self._bodies.take(self, len(part))
                parts.append(part)
                if not message.get("more_body"):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        except asyncio.CancelledError:
            if not self.given_up:
                raise
            assert self._task is not None
            self._task.uncancel()
            raise TooManyError from None
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
    """Of one server. All of it happens on one event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self.held = 0
        self.unfinished: dict[Body, None] = {}  # in the order in which they began

    def take(self, body: Body, size: int) -> None:
        while self.held + size > self._limit:
            oldest = next(iter(self.unfinished), body)
            if oldest is body:
                raise TooManyError
            del self.unfinished[oldest]
            oldest.give_up()
        body.size += size
        self.held += size
