"""The server under everything that answers HTTP, and peers that are silent, slow, or take nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from support.certificates import Authority
from support.waiting import wait_until

from suiro.foundation.http import Guard, HttpLimits, HttpServer, Tls, listen_on

HOST = "127.0.0.1"
LARGE = b"x" * (64 << 20)
"""More than sockets hold."""
LAST = b"Connection: close\r\n\r\n"
PATIENT = {"head_timeout_ms": 600_000, "body_timeout_ms": 600_000, "write_timeout_ms": 600_000}
"""Nobody is closed for their slowness."""


class Application:
    """Answers with what it got; `/held` once it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.held = 0
        self.large = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        content: Any = await request.body() or b"here"
        if scope["path"] == "/held":
            self.held += 1
            while not self.released.is_set():
                await asyncio.sleep(0.01)
        elif scope["path"] == "/large":
            self.large += 1
            content = LARGE
        await PlainTextResponse(content)(scope, receive, send)


@contextmanager
def serving(
    application: Any = None, *, tls: Tls | None = None, max_body_bytes: int = 1 << 20, **limits: int
) -> Iterator[HttpServer]:
    given = HttpLimits(**limits)
    guard = Guard(application or Application(), origins=None, max_body_bytes=max_body_bytes, limits=given)
    server = HttpServer(guard, listen_on(HOST, 0, name="the test"), name="test", tls=tls, limits=given)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def both_ends(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tls, ssl.SSLContext]:
    """TLS for a server and for its clients."""
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    chain = authority.sign("server", subject="/CN=localhost")
    return Tls(chain, chain), ssl.create_default_context(cafile=str(authority.certificate))


@pytest.fixture(params=["plain", "tls"])
def either(request: pytest.FixtureRequest) -> tuple[Tls | None, ssl.SSLContext | None]:
    both: tuple[Tls | None, ssl.SSLContext | None] = (None, None)
    return request.getfixturevalue("both_ends") if request.param == "tls" else both


def connected(server: HttpServer, first: bytes = b"", *, trusting: ssl.SSLContext | None = None) -> socket.socket:
    peer = socket.create_connection((HOST, server.port), timeout=60)
    if trusting is not None:
        peer = trusting.wrap_socket(peer, server_hostname="localhost")
    peer.sendall(first)
    return peer


def is_closed(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def all_of(peer: socket.socket) -> bytes:
    """What comes until the server closes."""
    received = bytearray()
    peer.settimeout(60)
    try:
        while part := peer.recv(1 << 16):
            received += part
    except ConnectionResetError:
        pass
    return bytes(received)


def post(size: int, sent: int) -> bytes:
    return f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + b"x" * sent


@pytest.mark.parametrize(
    "first",
    [b"", b"GET / HTTP/1.1\r\nHost:", post(1_000, 10), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
    ids=["silent", "half a head", "half a body", "idle"],
)
def test_whoever_holds_places_without_a_request_keeps_nobody_out(first: bytes) -> None:
    with serving(max_connections=8, **PATIENT) as server, ExitStack() as stack:
        peers = [stack.enter_context(connected(server, first)) for _ in range(40)]
        for _ in range(20):
            assert httpx.get(server.url, timeout=60).text == "here"
        wait_until(lambda: sum(not is_closed(peer) for peer in peers) <= 8, what="room")


def test_a_request_that_is_answered_is_never_ended_for_another() -> None:
    application = Application()
    with serving(application, max_connections=4, **PATIENT) as server, ExitStack() as stack:
        held = [stack.enter_context(connected(server, b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")) for _ in range(4)]
        wait_until(lambda: application.held == 4, what="four that are answered")
        with connected(server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as late:
            assert all_of(late) == b""  # closed at once: all places have work
        application.released.set()
        for peer in held:
            assert peer.recv(1_000).startswith(b"HTTP/1.1 200 OK")
        assert httpx.get(server.url, timeout=60).text == "here"


def test_a_server_does_not_tell_of_its_own_start_and_end(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), serving() as server:
        assert httpx.get(server.url, timeout=60).text == "here"
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_heads_and_bodies_have_their_time() -> None:
    with serving(head_timeout_ms=200, body_timeout_ms=200) as server:
        with connected(server) as silent:
            assert all_of(silent).startswith(b"HTTP/1.1 408")
        with connected(server, b"GET / HT") as slow_head:
            assert all_of(slow_head).startswith(b"HTTP/1.1 408")
        with connected(server, post(100, 10)) as slow_body:
            assert all_of(slow_body).startswith(b"HTTP/1.1 408")
        with connected(server, post(100, 100)) as whole:
            assert whole.recv(1_000).startswith(b"HTTP/1.1 200")


def test_an_answer_that_nobody_takes_is_given_up(either: tuple[Tls | None, ssl.SSLContext | None]) -> None:
    tls, trusting = either
    with (
        serving(tls=tls, write_timeout_ms=200) as server,
        connected(server, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n", trusting=trusting) as peer,
    ):
        connections = server._server.server_state.connections
        wait_until(lambda: connections, what="the connection")
        wait_until(lambda: not connections, what="its end")
        assert len(all_of(peer)) < len(LARGE)


def test_answers_that_nobody_takes_hold_no_more_than_their_share(
    either: tuple[Tls | None, ssl.SSLContext | None],
) -> None:
    """A thousand connections that take a byte now and then held gigabytes."""
    tls, trusting = either
    with serving(tls=tls, held_answer_bytes=100 << 20, **PATIENT) as server, ExitStack() as stack:
        request, last = (b"GET /large HTTP/1.1\r\nHost: x\r\n" + rest for rest in (b"\r\n", LAST))
        connections = server._server.server_state.connections
        stack.enter_context(connected(server, request, trusting=trusting))
        wait_until(lambda: any(one.unsent for one in connections), what="a client that is behind")
        (first,) = connections
        late = stack.enter_context(connected(server, last, trusting=trusting))
        wait_until(lambda: first not in connections, what="its end")
        assert len(all_of(late)) > len(LARGE)


def test_what_a_client_of_tls_did_not_wait_for_is_forgotten(both_ends: tuple[Tls, ssl.SSLContext]) -> None:
    tls, trusting = both_ends
    with serving(tls=tls, **PATIENT) as server:
        connections = server._server.server_state.connections
        with connected(server, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n", trusting=trusting):
            wait_until(lambda: any(one.unsent for one in connections), what="a client that is behind")
            (one,) = connections
        wait_until(lambda: not connections, what="its end")
        assert one.transport.get_write_buffer_size() == 0


def test_a_client_that_is_behind_holds_one_answer_only(
    either: tuple[Tls | None, ssl.SSLContext | None],
) -> None:
    """Further ones waited in the application, where they did not count."""
    application, (tls, trusting) = Application(), either
    request, last = (b"GET /large HTTP/1.1\r\nHost: x\r\n" + rest for rest in (b"\r\n", LAST))
    with (
        serving(application, tls=tls, **PATIENT) as server,
        connected(server, request + last, trusting=trusting) as peer,
    ):
        connections = server._server.server_state.connections
        wait_until(lambda: any(one.unsent for one in connections), what="a client that is behind")
        assert application.large == 1
        assert all_of(peer).count(b"HTTP/1.1 200 OK") == 2


def test_a_head_without_end_is_refused() -> None:
    with (
        serving(max_head_bytes=10_000, **PATIENT) as server,
        connected(server, b"GET / HTTP/1.1\r\nX: ") as peer,
    ):
        try:
            for _ in range(1_000):
                peer.sendall(b"x" * 10_000)
        except OSError:
            pass
        assert all_of(peer)[:12] in (b"HTTP/1.1 431", b"")


def test_pipelined_requests_are_answered_in_their_order_and_the_connection_is_idle_then() -> None:
    with serving(idle_timeout_ms=300) as server:
        with connected(server, b"".join(post(1, 1) for _ in range(50))) as peer:
            answers = all_of(peer)
        assert answers.count(b"HTTP/1.1 200 OK") == 50
        assert b"408" not in answers


def test_half_sent_bodies_hold_no_more_than_their_share() -> None:
    held: list[int] = []
    with (
        serving(max_body_bytes=100_000, held_body_bytes=1_000_000, **PATIENT) as server,
        ExitStack() as stack,
    ):
        bodies = server._server.config.app._bodies  # type: ignore[union-attr]
        for number in range(100):
            stack.enter_context(connected(server, post(100_000, 99_000)))
            held.append(bodies.held)
            if number % 10 == 9:
                assert httpx.post(server.url, content=b"y" * 90_000, timeout=60).status_code == 200
        assert 0 < max(held) <= 1_000_000


def test_silent_handshakes_keep_nobody_out_and_have_their_time(both_ends: tuple[Tls, ssl.SSLContext]) -> None:
    tls, trusting = both_ends
    with serving(tls=tls, max_connections=8, **PATIENT) as server, ExitStack() as stack:
        peers = [stack.enter_context(connected(server)) for _ in range(40)]
        url = f"https://localhost:{server.port}"
        with httpx.Client(verify=trusting, timeout=60) as http:
            assert http.get(url).text == "here"
        wait_until(lambda: sum(not is_closed(peer) for peer in peers) <= 8, what="room")
    with serving(tls=tls, head_timeout_ms=200) as server, connected(server) as silent:
        assert all_of(silent) == b""


def test_servers_of_one_process_share_its_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suiro.descriptors.for_connections", lambda: 40)
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(**PATIENT)) for _ in range(2)]
        peers = [stack.enter_context(connected(servers[0])) for _ in range(60)]
        for server in servers:
            assert httpx.get(server.url, timeout=60).text == "here"
        wait_until(lambda: sum(not is_closed(peer) for peer in peers) <= 20, what="room")
