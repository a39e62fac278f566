"""The listening socket: accepts connections, counts them, closes the idle ones."""

from __future__ import annotations

import logging
import socket
from asyncio import AbstractEventLoop

from suiro.broker.connection import SCRATCH_BYTES, Connection, RequestSink
from suiro.clock import Clock
from suiro.errors import ConfigError

logger = logging.getLogger(__name__)

_ACCEPTS_PER_WAKEUP = 64


class Server:
    """Owns every connection of one listener. Lives in the event loop's thread."""

    def __init__(
        self,
        *,
        loop: AbstractEventLoop,
        sink: RequestSink,
        clock: Clock,
        max_request_bytes: int,
        max_connections: int,
        max_idle_ms: int,
    ) -> None:
        self._loop = loop
        self._sink = sink
        self._clock = clock
        self._max_request_bytes = max_request_bytes
        self._max_connections = max_connections
        self._max_idle_ms = max_idle_ms
        self._connections: set[Connection] = set()
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._socket: socket.socket | None = None

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Bind and accept from now on. Returns the address in use. Raises `ConfigError` if it is taken."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            # `localhost` is often both; clients try IPv4 first or only.
            family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
            listener = socket.socket(family, kind, protocol)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host}:{port}: {error.strerror or error}. "
                "Choose another address with --listen, or port 0 for a free port"
            ) from error
        listener.listen(1024)
        listener.setblocking(False)
        self._socket = listener
        self._loop.add_reader(listener.fileno(), self._accept)
        bound = listener.getsockname()
        return str(bound[0]), int(bound[1])

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(_ACCEPTS_PER_WAKEUP):
            try:
                sock, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors: the backlog waits until one is free
                logger.error("cannot accept a connection: %s", error)
                return
            if len(self._connections) >= self._max_connections:
                logger.warning("refusing a connection: max.connections = %d reached", self._max_connections)
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.add(
                Connection(
                    sock,
                    loop=self._loop,
                    scratch=self._scratch,
                    sink=self._sink,
                    max_request_bytes=self._max_request_bytes,
                    now_ms=self._clock.monotonic_ms(),
                    on_close=self._connections.discard,
                )
            )

    def close_idle(self) -> None:
        """Close connections that have asked nothing for `connections.max.idle.ms`."""
        oldest = self._clock.monotonic_ms() - self._max_idle_ms
        for connection in [c for c in self._connections if c.last_active_ms < oldest]:
            if connection.on_abandoned is None:
                connection.close()

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for connection in list(self._connections):
            connection.close()
