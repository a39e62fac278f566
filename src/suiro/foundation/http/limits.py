"""The limits of a server, each with its name: what one peer may hold, and for how long."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import ClassVar

from suiro import descriptors

__all__ = ["HttpLimits", "Places"]

FEWEST_PLACES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    max_connections: int = 1_000
    """Of one server; fewer where the process may open few files (`Places`)."""
    head_timeout_ms: int = 10_000
    """From the connection, or the first byte of a further request, to the end of its head; and of a TLS handshake."""
    max_head_bytes: int = 64 * 1024
    body_timeout_ms: int = 20_000
    """For a request's body, and more by its size: a millisecond for each `body_bytes_per_ms` of it."""
    body_bytes_per_ms: int = 2
    write_timeout_ms: int = 30_000
    """A peer that takes nothing of its answer for so long is given up."""
    idle_timeout_ms: int = 75_000
    """Between two requests of a connection. Longer than clients keep idle connections, so that they find them open."""
    held_body_bytes: int = 64 * 1024 * 1024
    """Of all requests together, from their first byte on until they are answered."""


class Places:
    """How many connections a server may have: those of this process share what `descriptors` gives to connections."""

    _lock: ClassVar = threading.Lock()
    _holders: ClassVar[weakref.WeakSet[object]] = weakref.WeakSet()

    @classmethod
    def share(cls, holder: object) -> int:
        """What `holder` may have now. All that asked and are still there have the same."""
        with cls._lock:
            cls._holders.add(holder)
            holders = len(cls._holders)
        return max(FEWEST_PLACES, descriptors.for_connections() // holders)

    @classmethod
    def give_back(cls, holder: object) -> None:
        with cls._lock:
            cls._holders.discard(holder)
