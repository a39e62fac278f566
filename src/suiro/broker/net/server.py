"""The listening sockets: they accept connections within Kafka's limits, and close the idle ones.

A limit on all connections or on their rate makes clients wait in the socket's backlog, as with Kafka; a limit on
one address closes what is over it. Connections never take the descriptors that the logs' files need.
"""

from __future__ import annotations

import logging
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections import Counter as Tally
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from suiro import descriptors
from suiro.broker.metrics.metrics import Counter, Metrics
from suiro.broker.net.connection import SCRATCH_BYTES, Connection, ConnectionContext, RequestSink
from suiro.broker.net.held_memory import LoginMemory, RequestMemory, ResponseMemory
from suiro.broker.net.listeners import Listener
from suiro.broker.net.turns import Turns
from suiro.broker.net.unauthenticated import UnauthenticatedConnections
from suiro.broker.refusals import on_one_line
from suiro.broker.security.session import Session, one_text_of
from suiro.clock import Clock, stopwatch_ns
from suiro.config import MAX_INT, NodeSettings
from suiro.errors import ConfigError
from suiro.foundation.log_limit import LogLimit
from suiro.numerals import natural

if TYPE_CHECKING:
    from suiro.broker.net.tls import ListenerTls

logger = logging.getLogger(__name__)

_ACCEPTS_PER_WAKEUP = 64
ACCEPT_PAUSE_S = 1.0
"""Time that clients wait in the backlog after the node could not accept a connection."""
NAMED_FOR_MS = 5_000
_FULL_TOLD_EVERY_MS = 60_000
_LINES_A_MINUTE = 20
"""Of the log, about connections that are refused or closed: strangers can make thousands of them in a second."""
_MOST_HELD_BACK = 1000
"""Connections over their address's quota that are kept for a while before they are closed; more are closed at once."""
_SOCKET = "kafka_server_socket_server_metrics_"


class Server:
    """Owns every connection. Lives in the event loop's thread. Implements `connection.Owner`."""

    def __init__(
        self,
        *,
        loop: AbstractEventLoop,
        sink: RequestSink,
        clock: Clock,
        metrics: Metrics,
        settings: Callable[[], NodeSettings],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._acceptors: dict[str, Acceptor] = {}
        self._by_host: Tally[str] = Tally()
        self._rate = CreationRate()
        self._held_back: set[socket.socket] = set()
        self._most_by_descriptors = descriptors.for_connections()
        self._full = LogLimit(every_ms=_FULL_TOLD_EVERY_MS)
        self._lines = LogLimit(every_ms=60_000, most=_LINES_A_MINUTE)
        self.connection_quota: Callable[[str], int] | None = None
        """Counts a new connection of an address against its quota; how long it must wait, to be closed then."""
        self.connections: dict[Connection, None] = {}  # in the order they came, also where all are closed
        self.killed_when_expired = 0
        own = settings()
        self._context = ConnectionContext(
            loop=loop,
            clock=clock,
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
            sink=sink,
            owner=self,
            requests=RequestMemory(loop, max_bytes=own.queued_max_request_bytes, max_holders=own.queued_max_requests),
            logins=LoginMemory(max_bytes=own.queued_max_unauthenticated_bytes),
            responses=ResponseMemory(max_bytes=own.queued_max_response_bytes, are_too_many=self._are_too_many_files),
            turns=Turns(loop),
            max_request_bytes=own.socket_request_max_bytes,
            max_login_bytes=own.sasl_server_max_receive_size,
        )
        self._too_slow = metrics.counter("suiro_network_slowconnectionsclosed_total")
        self._stalled = metrics.counter("suiro_network_stalledconnectionsclosed_total")
        self._offer_gauges()

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """With the addresses that they got, in the order of `listen`."""
        return tuple(acceptor.listener for acceptor in self._acceptors.values())

    def listen(self, listeners: Iterable[Listener]) -> None:
        """Bind and accept from now on. Raises `ConfigError` if an address is taken or TLS is set wrongly."""
        if self._most_by_descriptors < self._settings().max_connections:
            logger.warning(
                "this process may have %d open files, which leaves %d connections to clients: max.connections = %d "
                "cannot be reached. Raise the limit (ulimit -Hn, LimitNOFILE= of systemd) to at least %d",
                descriptors.limit(),
                self._most_by_descriptors,
                self._settings().max_connections,
                3 * self._settings().max_connections,
            )
        for listener in listeners:
            tls = None
            own = self._settings().for_listener(listener.name)
            if listener.protocol.tls:
                from suiro.broker.net.tls import ListenerTls
                from suiro.broker.security.certificate_names import check_rules

                tls = ListenerTls(listener, self._settings())
                check_rules(own.ssl_principal_mapping_rules)
            sock = bind_socket(listener.host, listener.port, advice="Choose another address with --listen or listeners")
            bound = sock.getsockname()
            at = listener.bound(str(bound[0]), int(bound[1]))
            acceptor = Acceptor(at, sock, tls, own=own, metrics=self._metrics)
            self._acceptors[listener.name] = acceptor
            self._metrics.gauge(_SOCKET + "connection_count", acceptor.count, listener=listener.name)
            self._metrics.gauge(
                "suiro_network_unauthenticatedconnections",
                acceptor.unauthenticated.__len__,
                listener=listener.name,
            )
            self._open(acceptor)

    # Accepting

    def _open(self, acceptor: Acceptor) -> None:
        """Accept at this listener, unless that is so already or it is gone."""
        if acceptor.closed_until is not None:
            acceptor.closed_until.cancel()
            acceptor.closed_until = None
        acceptor.is_full = False
        if not acceptor.is_open and acceptor.socket is not None:
            acceptor.is_open = True
            self._loop.add_reader(acceptor.socket.fileno(), self._accept, acceptor)

    def _shut(self, acceptor: Acceptor) -> None:
        if acceptor.is_open and acceptor.socket is not None:
            acceptor.is_open = False
            self._loop.remove_reader(acceptor.socket.fileno())

    def _accept(self, acceptor: Acceptor) -> None:
        assert acceptor.socket is not None
        for _ in range(_ACCEPTS_PER_WAKEUP):
            if not self._has_room(acceptor):
                return
            try:
                sock, address = acceptor.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors: asked again at once, it would fail at once
                logger.error("cannot accept a connection: %s; trying again in %g s", error, ACCEPT_PAUSE_S)
                self._shut(acceptor)
                acceptor.closed_until = self._loop.call_later(ACCEPT_PAUSE_S, self._open, acceptor)
                return
            self._take(acceptor, sock, (one_text_of(str(address[0])), int(address[1])))

    def _has_room(self, acceptor: Acceptor) -> bool:
        """Whether one more may come in. If not, the listener is shut until that may change."""
        settings, own = self._settings(), acceptor.own
        now_ms = self._clock.monotonic_ms()
        most = min(settings.max_connections, self._most_by_descriptors)
        if (
            len(self.connections) + len(self._held_back) >= most
            or acceptor.open >= own.max_connections
            or len(acceptor.unauthenticated) >= own.max_unauthenticated_connections
        ) and not self._make_room(acceptor, now_ms):
            return False
        wait_ms = max(
            self._rate.wait_ms(settings.max_connection_creation_rate, now_ms),
            acceptor.rate.wait_ms(own.max_connection_creation_rate, now_ms),
        )
        if wait_ms:
            self._shut(acceptor)
            acceptor.closed_until = self._loop.call_later(wait_ms / 1000, self._open, acceptor)
            return False
        return True

    def _make_room(self, acceptor: Acceptor, now_ms: int) -> bool:
        """Close a connection that has not logged in for the next one. Shut the listener if none may go yet."""
        if acceptor.unauthenticated:
            wait_ms = acceptor.unauthenticated.wait_ms(now_ms)
            if not wait_ms:
                acceptor.unauthenticated.let_one_go()
                return True
            acceptor.closed_until = self._loop.call_later(wait_ms / 1000, self._open, acceptor)
            acceptor.is_full = True
        elif self._full.take(now_ms) is not None:
            logger.warning(
                "listener %s: %d connections are open, %d in all, and the next ones wait (max.connections, or the "
                "limit on open files: %d connections)",
                acceptor.listener.name,
                acceptor.open,
                len(self.connections),
                self._most_by_descriptors,
            )
        self._shut(acceptor)  # `_has_space` opens it again
        return False

    def _are_too_many_files(self, waiting: int) -> bool:
        """Whether the files that answers are sent from use up the descriptors. Half of those that connections leave, or
        of the spare ones, are kept for others. Most of these files are open anyway."""
        kept = max(self._most_by_descriptors - len(self.connections), descriptors.spare()) // 2
        return waiting > kept and descriptors.limit() - descriptors.open_now() < kept

    def _has_space(self) -> None:
        """A connection has gone or has logged in."""
        for acceptor in self._acceptors.values():
            if not acceptor.is_open and (acceptor.closed_until is None or acceptor.is_full):
                self._open(acceptor)

    def _take(self, acceptor: Acceptor, sock: socket.socket, peer: tuple[str, int]) -> None:
        settings, host = self._settings(), peer[0]
        limit = _limit_of_host(settings, host)
        if self._by_host[host] >= limit:
            self._tell(f"refusing a connection from {host}: max.connections.per.ip = {limit} reached", logging.INFO)
            acceptor.refused.add()
            sock.close()
            return
        throttle_ms = 0 if self.connection_quota is None else self.connection_quota(host)
        if throttle_ms:
            acceptor.refused.add()
            if len(self._held_back) >= _MOST_HELD_BACK:
                sock.close()
            else:
                self._held_back.add(sock)
                self._loop.call_later(throttle_ms / 1000, self._let_go, sock)
            return
        tls = None
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            local = sock.getsockname()
            if acceptor.tls is not None:
                from suiro.broker.net.tls import TlsStream

                tls = TlsStream(sock, acceptor.tls.context)
        except OSError as error:
            self._tell(f"a connection from {host} ended before it began: {error}", logging.INFO)
            sock.close()
            return
        self._rate.count()
        acceptor.rate.count()
        acceptor.created.add()
        acceptor.open += 1
        self._by_host[host] += 1
        connection = Connection(
            sock,
            acceptor.listener,
            self._context,
            peer=peer,
            local_address=(one_text_of(str(local[0])), int(local[1])),
            tls=tls,
            now_ms=self._clock.monotonic_ms(),
        )
        self.connections[connection] = None
        if tls is not None or acceptor.listener.protocol.sasl:
            acceptor.unauthenticated.add(connection, connection.last_active_ms)

    def _let_go(self, sock: socket.socket) -> None:
        self._held_back.discard(sock)
        sock.close()
        self._has_space()

    # Called by connections

    def closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        acceptor = self._acceptors[connection.listener.name]
        acceptor.open -= 1
        acceptor.gone.add()
        self._by_host[connection.host] -= 1
        if not self._by_host[connection.host]:
            del self._by_host[connection.host]
        acceptor.unauthenticated.remove(connection)
        self._has_space()

    def _admit(self, connection: Connection) -> None:
        """It has logged in."""
        if self._acceptors[connection.listener.name].unauthenticated.remove(connection):
            connection.admit()
            self._has_space()

    def secured(self, connection: Connection, certificate: bytes | None) -> None:
        acceptor = self._acceptors[connection.listener.name]
        if connection.listener.protocol.sasl:
            return
        if certificate is not None:
            from suiro.broker.security.certificate_names import principal_of

            principal = principal_of(certificate, acceptor.own.ssl_principal_mapping_rules)
            if principal is None:
                self.was_refused(connection, "no rule of ssl.principal.mapping.rules fits its certificate")
                acceptor.login_failures.add()
                connection.close()
                return
            session = connection.session
            connection.session = Session(principal=principal, host=session.host, listener=session.listener)
        acceptor.logins.add()
        self._admit(connection)

    def handshake_failed(self, connection: Connection, error: OSError) -> None:
        self._acceptors[connection.listener.name].login_failures.add()
        self.was_refused(connection, f"the TLS handshake failed: {error}")

    def was_refused(self, connection: Connection, why: str) -> None:
        self._tell(f"closing connection from {connection.peer}: {on_one_line(why)}", logging.WARNING)

    def was_too_slow(self, connection: Connection) -> None:
        self._too_slow.add()
        self.was_refused(connection, "it takes its answers too slowly")

    def held_too_much(self, connection: Connection) -> None:
        unauthenticated = self._acceptors[connection.listener.name].unauthenticated
        if unauthenticated.remove(connection):
            unauthenticated.count_closed()
            return
        self._stalled.add()
        self.was_refused(connection, "queued.max.request.bytes is used up, and its request has not begun")

    def login_ended(self, connection: Connection, *, again: bool, failed: bool) -> None:
        """A SASL login has ended; `again`: on a connection that was logged in."""
        if not failed:
            self._admit(connection)
        acceptor = self._acceptors[connection.listener.name]
        if again:
            (acceptor.relogin_failures if failed else acceptor.relogins).add()
        else:
            (acceptor.login_failures if failed else acceptor.logins).add()

    def _tell(self, line: str, level: int) -> None:
        """Log what a client has caused, and could cause as often as it likes."""
        if not logger.isEnabledFor(level):  # it takes no place of one that is written
            return
        left_out = self._lines.take(self._clock.monotonic_ms())
        if left_out is not None:
            logger.log(level, "%s%s", line, f" ({left_out} such lines were left out before it)" if left_out else "")

    # From time to time

    def refresh_certificates(self) -> None:
        """Use the certificates that changed on disk or in the settings."""
        for acceptor in self._acceptors.values():
            if acceptor.tls is not None:
                acceptor.tls.refresh(self._settings())

    def check_settings(self, settings: NodeSettings) -> None:
        """Raises `ConfigError` where a listener could not work by these settings."""
        for acceptor in self._acceptors.values():
            if acceptor.tls is not None:
                from suiro.broker.security.certificate_names import check_rules

                acceptor.tls.check(settings)
                check_rules(settings.for_listener(acceptor.listener.name).ssl_principal_mapping_rules)

    def settings_changed(self, settings: NodeSettings) -> None:
        """Apply the new limits and certificates."""
        self.refresh_certificates()
        for acceptor in self._acceptors.values():
            acceptor.own = settings.for_listener(acceptor.listener.name)
            self._open(acceptor)

    def close_idle(self) -> None:
        """Close connections over which nothing went for `connections.max.idle.ms`."""
        oldest = self._clock.monotonic_ms() - self._settings().connections_max_idle_ms
        for connection in [c for c in self.connections if c.last_active_ms < oldest]:
            if connection.on_abandoned is None and not connection.rests:
                connection.close()

    def close_late(self) -> None:
        """Close connections that do not log in in time, or whose requests that have not begun make others wait."""
        now_ms = self._clock.monotonic_ms()
        for acceptor in self._acceptors.values():
            acceptor.unauthenticated.expire(now_ms=now_ms, timeout_ms=acceptor.own.connection_authentication_timeout_ms)
        self._context.requests.end_standstill(stopwatch_ns())

    def let_go_of_named_files(self) -> None:
        """Release the files of answers that are `NAMED_FOR_MS` old: their clients have opened them by now."""
        oldest = self._clock.monotonic_ms() - NAMED_FOR_MS
        for connection in self.connections:
            if connection.named_files and connection.named_ms < oldest:
                connection.name_files((), connection.named_ms)

    def close(self) -> None:
        for acceptor in self._acceptors.values():
            self._shut(acceptor)
            if acceptor.closed_until is not None:
                acceptor.closed_until.cancel()
                acceptor.closed_until = None
            if acceptor.socket is not None:
                acceptor.socket.close()
                acceptor.socket = None
        for connection in list(self.connections):
            connection.close()
        for sock in list(self._held_back):
            self._let_go(sock)

    def _offer_gauges(self) -> None:
        requests, responses = self._context.requests, self._context.responses
        gauge = self._metrics.gauge
        gauge("kafka_network_requestchannel_requestqueuesize", self._waiting_requests)
        gauge("kafka_network_requestchannel_responsequeuesize", lambda: responses.holders)
        gauge("kafka_network_socketserver_memorypoolused", lambda: requests.used)
        gauge(
            "kafka_network_socketserver_memorypoolavailable",
            lambda: max(0, requests.max_bytes - requests.used),
        )
        gauge("suiro_network_responsebytes", lambda: responses.used)
        gauge("kafka_network_socketserver_expiredconnectionskilledcount", lambda: self.killed_when_expired)

    def _waiting_requests(self) -> int:
        return sum(connection.waiting_requests() for connection in self.connections)


class Acceptor:
    """One listening socket, and what is counted of it."""

    def __init__(
        self,
        listener: Listener,
        sock: socket.socket,
        tls: ListenerTls | None,
        *,
        own: NodeSettings,
        metrics: Metrics,
    ) -> None:
        self.listener = listener
        self.own = own
        """The settings as they are for this listener."""
        self.socket: socket.socket | None = sock
        self.tls = tls
        self.rate = CreationRate()
        self.open = 0
        self.is_open = False
        self.is_full = False
        """Whether it is shut until somebody goes, or logs in, or `closed_until`."""
        self.closed_until: TimerHandle | None = None
        self.unauthenticated = UnauthenticatedConnections(listener.name)

        def counter(name: str) -> Counter:
            return metrics.counter(_SOCKET + name, listener=listener.name)

        self.count = lambda: self.open
        self.created = counter("connection_creation_total")
        self.gone = counter("connection_close_total")
        self.refused = counter("connection_refused_total")
        self.logins = counter("successful_authentication_total")
        self.login_failures = counter("failed_authentication_total")
        self.relogins = counter("successful_reauthentication_total")
        self.relogin_failures = counter("failed_reauthentication_total")


class CreationRate:
    """Connections per second, with one second's worth at once after a rest."""

    def __init__(self) -> None:
        self._left = 0.0
        self._looked_ms: int | None = None

    def wait_ms(self, rate: int, now_ms: int) -> int:
        """How long the next connection must wait; 0: not at all."""
        if rate >= MAX_INT:
            self._left, self._looked_ms = 0.0, None
            return 0
        before = now_ms - 1000 if self._looked_ms is None else self._looked_ms
        self._looked_ms = now_ms
        self._left = min(float(rate), self._left + rate * (now_ms - before) / 1000)
        if self._left >= 1:
            return 0
        return int((1 - self._left) * 1000 / rate) + 1 if rate else 1000

    def count(self) -> None:
        self._left -= 1


def _limit_of_host(settings: NodeSettings, host: str) -> int:
    for part in settings.max_connections_per_ip_overrides.split(","):
        name, _, count = part.rpartition(":")
        if one_text_of(name.strip()) == host and (limit := natural(count)) is not None:
            return limit
    return settings.max_connections_per_ip


def bind_socket(host: str, port: int, *, advice: str) -> socket.socket:
    """A listening socket that does not block. Raises `ConfigError` with the advice if it cannot be."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # `localhost` often has both kinds of address; clients try IPv4 first or only.
        family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except (OSError, UnicodeError) as error:  # a name that no host can have
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot listen on {host}:{port}: {why}. {advice}, or port 0 for a free port") from error
    listener.setblocking(False)
    return listener
