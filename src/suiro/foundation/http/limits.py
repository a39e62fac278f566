"""The limits of an HTTP server, and how the servers of a process share its connections."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, fields

from suiro import descriptors
from suiro.errors import ConfigError

MIN_CONNECTIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Each limit is at least 1. Raises `ConfigError`."""

    max_connections: int = 1_000
    """Per server. Lower if the process may open few files (`connection_share`). One user may have requests in progress
    on three quarters of them (`requests_of_one`)."""
    head_timeout_ms: int = 10_000
    """From the connection, or the first byte of a further request, to the end of the head. Also for a TLS handshake."""
    max_head_bytes: int = 64 * 1024
    body_timeout_ms: int = 20_000
    """For a request body, plus one millisecond for every `body_bytes_per_ms` bytes received."""
    body_bytes_per_ms: int = 2
    write_timeout_ms: int = 30_000
    """A client that reads nothing of its response for this long is disconnected."""
    idle_timeout_ms: int = 75_000
    """Between two requests of a connection. Longer than clients keep idle connections, so that they close first."""
    held_body_bytes: int = 64 * 1024 * 1024
    """For all requests together, from the first byte until the response."""
    held_answer_bytes: int = 256 * 1024 * 1024
    """For all responses together, of what their clients have not taken yet. Above it, the clients that have been behind
    for longest are disconnected."""

    def __post_init__(self) -> None:
        for one in fields(self):
            if getattr(self, one.name) < 1:
                raise ConfigError(f"{one.name} must be at least 1, got {getattr(self, one.name)}")


_lock = threading.Lock()
_servers: weakref.WeakSet[object] = weakref.WeakSet()


def connection_share(server: object) -> int:
    """Return how many connections a server may have. The live servers of this process have equal shares of the file
    descriptors that `descriptors` reserves for connections."""
    with _lock:
        _servers.add(server)
    return _share()


def requests_of_one(limits: HttpLimits) -> int:
    """Return how many requests of one user may be in progress, so that others get an answer, too."""
    return min(limits.max_connections, _share()) * 3 // 4


def _share() -> int:
    with _lock:
        count = max(1, len(_servers))
    return max(MIN_CONNECTIONS, descriptors.for_connections() // count)


def give_share_back(server: object) -> None:
    with _lock:
        _servers.discard(server)
