"""Accepts the connections of a server, and closes those that exceed a limit.

Connections count from the moment they are accepted, before TLS and HTTP. When the maximum is reached, a new connection
replaces a silent one: first those with an incomplete TLS handshake or request head, then idle ones, then those that
send a body; in each group, the one that has waited longest. A request that is being answered is never ended for it. So
a thousand silent connections do not lock anyone out. One periodic check closes connections that exceed a limit of
`HttpLimits`, instead of a timer for each request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httptools
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from suiro.foundation.http.listening import SERVERS, HttpLimits, connection_share
from suiro.foundation.http.tls_transport import TlsTransport
from suiro.foundation.log_limit import LogLimit

LONGEST_CHECK_S = 1.0  # between two checks of all connections
ACCEPT_PAUSE_S = 0.1  # after a failure, such as no descriptor left
TELL_EVERY_S = 60.0
ADDRESSES_TOLD = 10
"""The most addresses whose invalid requests are told one by one. Those of others are counted together."""
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

HEAD, IDLE, BODY, ANSWER = range(4)  # in the order in which they are closed for new connections

logger = logging.getLogger(__name__)


class Connection(HttpToolsProtocol):
    """Uvicorn's connection, plus the state it is in and since when."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        limits: HttpLimits,
        loop: asyncio.AbstractEventLoop,
        invalid: InvalidRequests,
    ) -> None:
        super().__init__(config=config, server_state=state, app_state={}, _loop=loop)
        self._limits = limits
        self._invalid = invalid
        self._waits_for = HEAD
        self._since = loop.time()
        self._answering = 0  # requests; more than one if the client pipelines
        self._head_bytes = 0
        self._body_bytes = 0
        self.unsent = 0  # bytes at the last check
        self._unsent_since = 0.0
        self.behind_since = 0.0

    def connection_made(self, transport: Any) -> None:
        is_tls = transport.get_extra_info("sslcontext") is not None
        super().connection_made(TlsTransport(transport) if is_tls else transport)
        self.app = partial(_once_taken, self.flow, self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if isinstance(self.transport, TlsTransport):
            # Uvicorn's timer for the next request may keep this object, with what could not be sent, for a minute.
            self.transport.abort()

    def resume_writing(self) -> None:
        if not isinstance(self.transport, TlsTransport) or self.transport.pass_on():
            super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """As uvicorn's, which logs a line for each invalid request."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # answered as if it were not there
        except httptools.HttpParserError:
            self._invalid.count(self.client[0] if self.client else "an unnamed address", self.loop.time())
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._waits_for == HEAD:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.max_head_bytes and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._now(HEAD)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._head_bytes = self._body_bytes = 0
        self._answering += 1
        self._now(BODY)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._now(ANSWER if self._answering else IDLE)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._answering -= 1
        if self._waits_for == ANSWER and not self._answering:
            self._now(IDLE)

    def _now(self, waits_for: int) -> None:
        self._waits_for = waits_for
        self._since = self.loop.time()

    # Called by the server

    def eviction_order(self) -> tuple[int, float]:
        """The lowest value is closed first. A connection in ANSWER is never closed."""
        return ANSWER if self._waits_for_server() else self._waits_for, self._since

    def _waits_for_server(self) -> bool:
        """An earlier request is being answered, or the server has paused reading."""
        earlier = self._answering - (self._waits_for == BODY)
        return earlier > 0 or (self._waits_for == BODY and self.flow.read_paused)

    def close_if_over_a_limit(self, now: float) -> None:
        if self._is_stuck(now):
            self.transport.abort()
            return
        if self.transport.is_closing() or self._waits_for_server():
            return
        limits = self._limits
        allowed_ms = {
            HEAD: limits.head_timeout_ms,
            IDLE: limits.idle_timeout_ms,
            BODY: limits.body_timeout_ms + self._body_bytes / limits.body_bytes_per_ms,
            ANSWER: math.inf,
        }
        if (now - self._since) * 1_000 > allowed_ms[self._waits_for]:
            if self._waits_for == IDLE:
                self.transport.close()
            else:
                self._close_late()

    def _is_stuck(self, now: float) -> bool:
        """The client does not read its response."""
        before, self.unsent = self.unsent, self.transport.get_write_buffer_size()
        if not before:
            self.behind_since = now
        if self.unsent < before or not before:
            self._unsent_since = now
            return False
        return (now - self._unsent_since) * 1_000 > self._limits.write_timeout_ms

    def _close_late(self) -> None:
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_TOO_SLOW)
        self.transport.close()


async def _once_taken(flow: FlowControl, application: Any, scope: Scope, receive: Receive, send: Send) -> None:
    """A further response of a client that is behind would wait in the application, where it does not count."""
    await flow.drain()
    await application(scope, receive, send)


class InvalidRequests:
    """Tells of invalid requests: at most one line a minute of each address, and how many more there were."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._more: Counter[str] = Counter()
        self._ends: float | None = None

    def count(self, address: str, now: float) -> None:
        self.tell(now)
        if self._ends is None:
            self._ends = now + TELL_EVERY_S
        if address in self._told:
            self._more[address] += 1
        elif len(self._told) < ADDRESSES_TOLD:
            self._told.add(address)
            logger.warning("refused an invalid HTTP request from %s", address)
        else:
            self._more["other addresses"] += 1

    def tell(self, now: float) -> None:
        """Call it periodically."""
        if self._ends is None or now < self._ends:
            return
        if self._more:
            counted = ", ".join(f"{number} from {address}" for address, number in self._more.items())
            logger.warning("refused more invalid HTTP requests within a minute: %s", counted)
        self._told, self._more, self._ends = set(), Counter(), None


class Server(uvicorn.Server):
    """Uvicorn's server, which accepts connections from a listening socket by itself, and has no signal handlers."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        limits: HttpLimits,
        tls: ssl.SSLContext | None,
        on_started: threading.Event,
    ) -> None:
        super().__init__(config)
        self._open: set[Any] = self.server_state.connections
        self._listener = listener
        self._limits = limits
        self._tls = tls
        self._on_started = on_started
        self._handshakes: dict[asyncio.Task[None], float] = {}  # start times, oldest first
        self._warnings = LogLimit(every_ms=60_000)  # so that refused connections cannot fill the log
        self._invalid = InvalidRequests()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        self._loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        SERVERS.add(self)
        self._tasks = [self._loop.create_task(work()) for work in (self._accept, self._check_limits)]
        self.started = True
        self._on_started.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        SERVERS.discard(self)
        self._invalid.tell(math.inf)
        for task in (*self._tasks, *self._handshakes):
            task.cancel()
        await super().shutdown()

    async def _accept(self) -> None:
        while True:
            try:
                peer, _ = await self._loop.sock_accept(self._listener)
            except OSError as error:
                self._warn("cannot accept a connection: %s", error)
                self._make_room()
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            limit = min(self._limits.max_connections, connection_share())
            while self._taken() >= limit and self._make_room():
                pass
            if self._taken() >= limit:
                self._warn("all %d connections have requests in progress; new connections are closed", limit)
                peer.close()
                continue
            task = self._loop.create_task(self._begin(peer))
            task.add_done_callback(partial(_close_unless_begun, peer))
            if self._tls is None:
                await task  # returns at once
            else:
                self._handshakes[task] = self._loop.time()
                task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    def _taken(self) -> int:
        return len(self._open) + len(self._handshakes)

    async def _begin(self, peer: socket.socket) -> None:
        timeout = {} if self._tls is None else {"ssl_handshake_timeout": self._limits.head_timeout_ms / 1_000}
        try:
            await self._loop.connect_accepted_socket(self._made, peer, ssl=self._tls, **timeout)
        except (OSError, asyncio.CancelledError):
            peer.close()  # not TLS, or too slow
        except Exception:  # an error of one connection must not stop the server
            logger.exception("a connection could not be set up")
            peer.close()

    def _made(self) -> Connection:
        return Connection(self.config, self.server_state, self._limits, self._loop, self._invalid)

    def _make_room(self) -> bool:
        place: Callable[[Connection], tuple[int, float]] = Connection.eviction_order
        first = min(self._open, key=place, default=None)
        state, since = (ANSWER, 0.0) if first is None else place(first)
        task = next(iter(self._handshakes), None)
        if task is not None and (HEAD, self._handshakes[task]) < (state, since):
            del self._handshakes[task]
            task.cancel()
            return True
        if first is None or state == ANSWER:
            return False
        self._open.discard(first)
        first.transport.abort()
        return True

    async def _check_limits(self) -> None:
        limits = self._limits
        shortest_ms = min(
            limits.head_timeout_ms, limits.body_timeout_ms, limits.idle_timeout_ms, limits.write_timeout_ms
        )
        while True:
            await asyncio.sleep(min(LONGEST_CHECK_S, shortest_ms / 2_000))
            now = self._loop.time()
            self._invalid.tell(now)
            for connection in list(self._open):
                connection.close_if_over_a_limit(now)
            self._limit_unsent()

    def _limit_unsent(self) -> None:
        """Responses may have megabytes, and a client may take a byte now and then."""
        held = sum(connection.unsent for connection in self._open)
        for connection in sorted(self._open, key=lambda one: (not one.unsent, one.behind_since)):
            if held <= self._limits.held_answer_bytes:
                return
            held -= connection.unsent
            connection.transport.abort()

    def _warn(self, message: str, *values: object) -> None:
        if self._warnings.take(int(self._loop.time() * 1_000)) is not None:
            logger.warning(message, *values)


def _close_unless_begun(peer: socket.socket, task: asyncio.Task[None]) -> None:
    """A task that is cancelled before its first step never runs `_begin`, so its socket is closed here."""
    if task.cancelled():
        peer.close()
