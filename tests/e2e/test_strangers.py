"""Strangers who connect and do not log in: they have a small share of a node, and its clients keep the rest."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.admin import ask
from support.certificates import Authority
from support.waiting import wait_until
from support.wire import TIMEOUT_S, Wire

from suiro.broker.net import held_memory
from suiro.node import InProcessNode
from suiro.protocol.messages import API_KEYS, request_class, write_request

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder";'
GUARDED = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
}
AUTHENTICATE = struct.pack(">hhi", 36, 2, 1)
API_VERSIONS = struct.pack(">hhi", 18, 0, 1)


@contextmanager
def node(**settings: str) -> Iterator[InProcessNode]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    with InProcessNode.start(settings=GUARDED | named) as running:
        yield running


class Strangers(ExitStack):
    """Connections of one test, closed at its end."""

    def __init__(self, running: InProcessNode) -> None:
        super().__init__()
        host, _, port = running.bootstrap_servers.rpartition(":")
        self._address = (host, int(port))

    def connect(self) -> socket.socket:
        return self.enter_context(socket.create_connection(self._address, timeout=TIMEOUT_S))

    def half_sent(self, header: bytes, *, claims: int, sends: int) -> socket.socket:
        """A request of which the rest never comes."""
        sock = self.connect()
        sock.sendall(struct.pack(">i", claims) + header + bytes(sends - len(header)))
        return sock


def logged_in(running: InProcessNode, password: str = "wonder") -> Wire:
    wire = Wire(running.bootstrap_servers)
    wire.call(request_class(API_KEYS["sasl_handshake"], 1)(mechanism="PLAIN"))
    message = request_class(API_KEYS["sasl_authenticate"], 2)
    answer = wire.call(message(auth_bytes=f"\0alice\0{password}".encode()))
    assert answer.error_code.name == "none", answer
    return wire


def is_served(wire: Wire) -> bool:
    message = request_class(API_KEYS["describe_cluster"], 1)
    answer = wire.call(message(include_cluster_authorized_operations=False, endpoint_type=1))
    return bool(answer.error_code.name == "none")


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def test_a_line_of_the_log_is_short_whatever_a_client_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="suiro")
    with node() as running:
        with Wire(running.bootstrap_servers) as stranger:
            answer = stranger.call(request_class(API_KEYS["sasl_handshake"], 1)(mechanism="x\n" * 15_000))
            assert answer.error_code.name == "unsupported_sasl_mechanism"
        rule = {"resource_type": 0, "resource_name": "y\n" * 15_000, "principal": "User:a", "host": "*"}
        with logged_in(running) as client, pytest.raises(ConnectionError):
            ask(client, "create_acls", 3, creations=[rule])
    said = [record.getMessage() for record in caplog.records]
    for begin in ("Failed authentication with", "closing connection from"):
        (line,) = [text for text in said if text.startswith(begin)]
        assert len(line) < 1000
        assert "\n" not in line


def test_half_sent_logins_take_only_the_memory_of_those_who_have_not_logged_in() -> None:
    with (
        node(queued__max__unauthenticated__bytes="2000000", queued__max__request__bytes="4000000") as running,
        logged_in(running) as old,
        Strangers(running) as strangers,
    ):
        context = running.broker.server._context
        socks = [strangers.half_sent(AUTHENTICATE, claims=524_000, sends=270_000) for _ in range(20)]
        closed = [sock for sock in socks[:15] if is_closed(sock)]
        assert len(closed) == 15, "each but the last holds more than what comes new"
        assert context.logins.used <= 2_000_000
        assert context.requests.used == 0
        assert is_served(old)
        with logged_in(running) as new:
            assert is_served(new)


def test_what_is_only_claimed_does_not_count() -> None:
    """Twenty bytes each of a request that is said to have half a megabyte."""
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "queued__max__request__bytes": "2000000"}
    with node(**settings) as running, Strangers(running) as strangers:
        memory = running.broker.server._context.requests
        for _ in range(300):
            strangers.half_sent(API_VERSIONS, claims=500_000, sends=20)
        wait_until(lambda: memory.holders == 300)
        assert memory.used <= 300 * 1024
        with Wire(running.bootstrap_servers) as wire:
            assert is_served(wire)


def test_silent_connections_give_way_to_who_logs_in() -> None:
    with (
        node(max__unauthenticated__connections="10") as running,
        logged_in(running) as old,
        Strangers(running) as strangers,
    ):
        unauthenticated = running.broker.server._acceptors["SASL_PLAINTEXT"].unauthenticated
        first = strangers.connect()
        for _ in range(40):
            strangers.connect()
        with logged_in(running) as new:  # it waits behind them, a second for each ten
            assert is_served(new)
            assert is_closed(first)
            assert len(unauthenticated) <= 10
            assert is_served(old)


def test_a_full_house_of_strangers_gives_way_too() -> None:
    with node(max__connections="5") as running, logged_in(running) as old, Strangers(running) as strangers:
        for _ in range(6):
            strangers.connect()
        with logged_in(running) as new:
            assert is_served(new)
            assert is_served(old)
            assert len(running.broker.server.connections) <= 5


def test_a_login_takes_only_so_long() -> None:
    with (
        node(connection__authentication__timeout__ms="300") as running,
        logged_in(running) as known,
        Strangers(running) as strangers,
    ):
        assert is_closed(strangers.connect())
        assert is_closed(strangers.half_sent(AUTHENTICATE, claims=500, sends=20))
        assert is_served(known)


def test_a_tls_handshake_takes_only_so_long(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl__keystore__location": str(authority.sign("server", subject="/CN=localhost")),
        "connection__authentication__timeout__ms": "1000",
    }
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with node(**settings) as running, Strangers(running) as strangers:
        unauthenticated = running.broker.server._acceptors["SSL"].unauthenticated
        known = strangers.enter_context(context.wrap_socket(strangers.connect(), server_hostname="localhost"))
        frame = struct.pack(">hhih", 18, 0, 7, -1)
        known.sendall(struct.pack(">i", len(frame)) + frame)
        assert len(known.recv(4)) == 4
        assert len(unauthenticated) == 0
        silent = strangers.connect()
        wait_until(lambda: len(unauthenticated) == 1)
        assert is_closed(silent)
        known.sendall(struct.pack(">i", len(frame)) + frame)
        assert len(known.recv(4)) > 0


def test_a_renewed_login_is_not_a_strangers() -> None:
    """Its memory and its place stay those of a client, whatever strangers do meanwhile."""
    with (
        node(connection__authentication__timeout__ms="300", connections__max__reauth__ms="60000") as running,
        logged_in(running) as known,
        Strangers(running) as strangers,
    ):
        known.call(request_class(API_KEYS["sasl_handshake"], 1)(mechanism="PLAIN"))
        assert is_closed(strangers.connect())
        message = request_class(API_KEYS["sasl_authenticate"], 2)
        assert known.call(message(auth_bytes=b"\0alice\0wonder")).error_code.name == "none"
        assert is_served(known)


def test_one_users_failing_logins_do_not_hold_others_up() -> None:
    """Each waits a minute for its answer; their places go to others, and their work is done."""
    with (
        node(connection__failed__authentication__delay__ms="60000", max__unauthenticated__connections="10") as running,
        ExitStack() as stack,
    ):
        failures = running.broker.server._acceptors["SASL_PLAINTEXT"].login_failures
        for _ in range(10):
            wire = stack.enter_context(Wire(running.bootstrap_servers))
            wire.call(request_class(API_KEYS["sasl_handshake"], 1)(mechanism="PLAIN"))
            message = request_class(API_KEYS["sasl_authenticate"], 0)(auth_bytes=b"\0alice\0guess")
            wire.send_bytes(write_request(message, correlation_id=9, client_id="wire"))
        wait_until(lambda: failures.value == 10)
        with logged_in(running) as good:
            assert is_served(good)


def test_requests_that_are_never_whole_end_when_others_wait_for_their_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "queued__max__request__bytes": "1000000"}
    with node(**settings) as running, Strangers(running) as strangers:
        memory = running.broker.server._context.requests
        for _ in range(4):
            strangers.half_sent(API_VERSIONS, claims=400_000, sends=300_000)
        wait_until(lambda: memory.exhausted)
        monkeypatch.setattr(held_memory, "LONGEST_WAIT_NS", 0)
        with Wire(running.bootstrap_servers) as wire:
            assert is_served(wire)
        assert "its request has not begun" in caplog.text
