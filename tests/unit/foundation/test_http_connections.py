"""What a connection is held to, at times that the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from suiro.errors import ConfigError
from suiro.foundation.http import HttpLimits
from suiro.foundation.http.connections import ANSWER, BODY, HEAD, IDLE, Connection, InvalidRequests

LIMITS = HttpLimits(head_timeout_ms=1_000, body_timeout_ms=1_000, body_bytes_per_ms=1, idle_timeout_ms=1_000)


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unsent = 0
        self.ended = ""

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return bool(self.ended)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def tried(act: Callable[[Connection, Transport, asyncio.Event], Any]) -> None:
    """A connection whose requests are answered once an event is set."""

    async def run() -> None:
        released = asyncio.Event()

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            while (await receive()).get("more_body"):
                pass
            await released.wait()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

        config = Config(application, lifespan="off", ws="none", log_config=None)
        connection = Connection(config, ServerState(), LIMITS, asyncio.get_running_loop(), InvalidRequests())
        transport = Transport()
        connection.connection_made(transport)
        await act(connection, transport, released)

    asyncio.run(asyncio.wait_for(run(), 30))


def later(connection: Connection, ms: float) -> None:
    connection.close_if_over_a_limit(connection._since + ms / 1_000)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_one_request_after_another() -> None:
    async def act(connection: Connection, transport: Transport, released: asyncio.Event) -> None:
        assert connection.eviction_order()[0] == HEAD
        connection.data_received(b"GET / HTTP/1.1\r\n")
        assert connection.eviction_order()[0] == HEAD
        connection.data_received(b"Content-Length: 2\r\n\r\n")
        assert connection.eviction_order()[0] == BODY
        connection.data_received(b"ab")
        assert connection.eviction_order()[0] == ANSWER
        later(connection, 1e9)  # what takes long is ours
        connection.data_received(b"GE")  # the next one begins before this is answered
        assert connection.eviction_order()[0] == ANSWER
        later(connection, 1e9)
        assert not transport.ended
        released.set()
        await settled()
        assert connection.eviction_order()[0] == HEAD
        connection.data_received(b"T / HTTP/1.1\r\n\r\n")
        await settled()
        assert connection.eviction_order()[0] == IDLE
        later(connection, 900)
        assert not transport.ended
        later(connection, 1_100)
        assert (transport.ended, transport.written.count(b"200 OK")) == ("closed", 2)

    tried(act)


def test_a_body_has_time_by_its_size() -> None:
    async def act(connection: Connection, transport: Transport, released: asyncio.Event) -> None:
        connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 10000\r\n\r\n" + b"x" * 5_000)
        await settled()
        later(connection, 5_900)
        assert not transport.ended
        later(connection, 6_100)
        assert transport.ended == "closed"
        assert transport.written.startswith(b"HTTP/1.1 408")

    tried(act)


def test_an_answer_must_be_taken_but_may_be_taken_slowly() -> None:
    async def act(connection: Connection, transport: Transport, released: asyncio.Event) -> None:
        connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
        now = 0.0
        for unsent in range(100, 0, -1):
            transport.unsent = unsent
            now += LIMITS.write_timeout_ms / 2_000
            connection.close_if_over_a_limit(now)
        assert not transport.ended
        for _ in range(3):
            now += LIMITS.write_timeout_ms / 2_000
            connection.close_if_over_a_limit(now)
        assert transport.ended == "aborted"

    tried(act)


@pytest.mark.parametrize("name", [one.name for one in fields(HttpLimits)])
def test_a_limit_of_zero_is_refused(name: str) -> None:
    """`body_bytes_per_ms` of 0 failed at the first body that came, and ended the check of all connections."""
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        HttpLimits(**{name: 0})


def test_invalid_requests_of_a_stranger_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Each logged a line."""
    invalid = InvalidRequests()
    for number in range(1_000):
        invalid.count("192.0.2.1", number / 100)
    for number in range(1_000):
        invalid.count(f"198.51.100.{number}", 20)
    assert len(caplog.messages) == 10
    assert caplog.messages[0] == "refused an invalid HTTP request from 192.0.2.1"
    invalid.tell(59)
    assert len(caplog.messages) == 10
    invalid.tell(60)
    assert caplog.messages[10:] == [
        "refused more invalid HTTP requests within a minute: 999 from 192.0.2.1, 991 from other addresses"
    ]
    invalid.tell(1_000)
    invalid.count("192.0.2.1", 1_001)
    assert len(caplog.messages) == 12


@pytest.mark.parametrize(
    ("request_", "status", "lines"),
    [
        (b"\x16\x03\x01\x02\0", b"400", 1),
        (b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", b"200", 0),
    ],
)
def test_what_a_stranger_sends_is_answered_and_told_once(
    caplog: pytest.LogCaptureFixture, request_: bytes, status: bytes, lines: int
) -> None:
    async def act(connection: Connection, transport: Transport, released: asyncio.Event) -> None:
        released.set()
        connection.data_received(request_)
        await settled()
        assert transport.written.startswith(b"HTTP/1.1 " + status)

    tried(act)
    assert len(caplog.messages) == lines
