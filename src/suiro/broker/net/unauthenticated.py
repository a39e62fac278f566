"""The connections of one listener that have not authenticated yet, or not finished their TLS handshake.

Anybody can open such a connection, so they have small limits of their own: a number, bytes (`held_memory.LoginMemory`)
and time. At the limit a new connection takes the place of the oldest one of the address that has the most, once that
one has had `FAIR_CHANCE_MS`. A stranger who opens thousands of connections loses his own, and a client that
authenticates at once is let in. Authenticated connections are not affected.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from suiro.foundation.log_limit import LogLimit

if TYPE_CHECKING:
    from suiro.broker.net.connection import Connection

logger = logging.getLogger(__name__)

FAIR_CHANCE_MS = 1000
"""A connection is not closed for another before this time. The others wait in the listener's backlog."""
_TELL_EVERY_MS = 60_000


class UnauthenticatedConnections:
    """`add` and `remove` keep the list; `wait_ms` and `let_one_go` make room; `expire` closes those that are late."""

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._by_host: dict[str, dict[Connection, int]] = {}  # since when; the first came first
        self._count = 0
        self._closed = 0
        self._lines = LogLimit(every_ms=_TELL_EVERY_MS)

    def __len__(self) -> int:
        return self._count

    def add(self, connection: Connection, now_ms: int) -> None:
        self._by_host.setdefault(connection.host, {})[connection] = now_ms
        self._count += 1

    def remove(self, connection: Connection) -> bool:
        """The connection has authenticated, or is closed. Returns whether it was in the list."""
        of_host = self._by_host.get(connection.host, {})
        if connection not in of_host:
            return False
        del of_host[connection]
        self._count -= 1
        if not of_host:
            del self._by_host[connection.host]
        return True

    def wait_ms(self, now_ms: int) -> int:
        """How long until `let_one_go` may be called; 0: now. The list must not be empty."""
        return max(0, self._next()[1] + FAIR_CHANCE_MS - now_ms)

    def let_one_go(self) -> None:
        self._close(self._next()[0])

    def expire(self, *, now_ms: int, timeout_ms: int) -> None:
        """Close the connections that are older than the timeout. Call it periodically."""
        for of_host in list(self._by_host.values()):
            for connection, since_ms in list(of_host.items()):
                if since_ms + timeout_ms > now_ms:
                    break
                self._close(connection)
        self._tell(now_ms)

    def count_closed(self) -> None:
        """One was closed for the memory that it held."""
        self._closed += 1

    def _next(self) -> tuple[Connection, int]:
        """The connection to close next, and when it was accepted."""
        firsts = ((of_host, *next(iter(of_host.items()))) for of_host in self._by_host.values())
        _, connection, since_ms = max(firsts, key=lambda first: (len(first[0]), -first[2]))
        return connection, since_ms

    def _close(self, connection: Connection) -> None:
        self._closed += 1
        connection.close()  # which removes it

    def _tell(self, now_ms: int) -> None:
        """Log at most one line a minute."""
        if not self._closed or self._lines.take(now_ms) is None:
            return
        logger.warning(
            "listener %s: closed %d connections that had not logged in; %d are open. They were too many "
            "(max.unauthenticated.connections), too slow (connection.authentication.timeout.ms) or sent too much "
            "(queued.max.unauthenticated.bytes). Where they come from one address, set max.connections.per.ip",
            self._listener,
            self._closed,
            self._count,
        )
        self._closed = 0
