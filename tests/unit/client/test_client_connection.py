"""A connection that several brokers share, because they have one address."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from suiro.client.connection import Connection, build
from suiro.client.settings import ClientSettings
from suiro.clock import ManualClock, SystemClock
from suiro.errors import BrokenConnectionError, BrokerFailureError, UsageError
from suiro.protocol.messages import API_KEYS, request_class

HEARTBEAT = b"\x00\x0c\x00\x04"


CLOCK = SystemClock()


def connected() -> tuple[Connection, socket.socket]:
    ours, theirs = socket.socketpair()
    settings = ClientSettings.from_mapping({})
    return Connection(ours, host="broker", port=9092, settings=settings, clock=CLOCK), theirs


def test_a_string_that_no_broker_takes_is_not_sent() -> None:
    """The broker closed the connection, and the client sent it again until its time was up."""
    connection, theirs = connected()
    request = request_class(API_KEYS["delete_groups"], 2)(groups_names=("x" * 32_768,))
    with pytest.raises(UsageError, match=r"delete_groups version 2 cannot carry .* 32768 bytes"):
        connection.send(request, deadline_ms=CLOCK.monotonic_ms() + 30_000)
    connection.close()
    assert theirs.recv(1) == b""
    theirs.close()


def test_a_long_text_that_cannot_be_encoded_is_a_wrong_call() -> None:
    """The arguments of a command may have bytes that are no UTF-8. It ended with a traceback."""
    connection, theirs = connected()
    text = "\udcff" * 9000
    request = build(request_class(API_KEYS["find_coordinator"], 3), key=text, key_type=0)
    with pytest.raises(UsageError, match="cannot carry"):
        connection.send(request, deadline_ms=CLOCK.monotonic_ms() + 30_000)
    with pytest.raises(UsageError, match="at most 32767"):
        build(request_class(API_KEYS["find_coordinator"], 3), key=text * 4, key_type=0)
    connection.close()
    theirs.close()


def test_a_connection_that_broke_is_broken_for_each_request() -> None:
    """The second request of two was an error of the program."""
    connection, theirs = connected()
    deadline_ms = CLOCK.monotonic_ms() + 30_000
    for number in (1, 2):
        connection.send_frame([HEARTBEAT + number.to_bytes(4, "big")], deadline_ms=deadline_ms)
    theirs.close()
    for receive in (connection.receive, connection.receive, connection.receive_frame):
        with pytest.raises(BrokenConnectionError, match="broker:9092"):
            receive(deadline_ms=deadline_ms)
    connection.close()


@pytest.mark.parametrize(
    ("asked", "answered", "wrong"),
    [
        ([("t", 0), ("t", 1)], [("t", 0)], "left t-1 out of its answer"),
        ([("t", 0)], [("t", 0), ("t", 1)], "answered about t-1, which was not asked for"),
        ([("t", 0)], [("t", 0), ("t", 0)], "answered about t-0 twice"),
        (None, ["a", "a"], "answered about 'a' twice"),
        (None, ["a", None], "answered about None, which was not asked for"),
    ],
)
def test_a_response_answers_what_was_asked(asked: Any, answered: list[Any], wrong: str) -> None:
    connection, theirs = connected()
    whole = connection.matched("ask", asked, ((key, 1) for key in asked or answered[:1]))
    assert whole == dict.fromkeys(asked or answered[:1], 1)
    with pytest.raises(BrokerFailureError, match=f"^ask: broker:9092 {wrong} "):
        connection.matched("ask", asked, ((key, 1) for key in answered))
    connection.close()
    theirs.close()


@pytest.mark.parametrize("size", [4, 5, 6])
def test_a_first_response_that_is_too_short(size: int) -> None:
    """It was an error of `struct`."""
    connection, theirs = connected()
    theirs.sendall(size.to_bytes(4, "big") + b"\0\0\0\1\0\0"[:size])
    with pytest.raises(BrokenConnectionError, match="broker:9092 did not answer ApiVersions as Kafka does"):
        connection._negotiate(CLOCK.monotonic_ms() + 30_000)
    connection.close()
    theirs.close()


def test_a_response_that_claims_billions_is_refused_before_there_is_room_for_them() -> None:
    connection, theirs = connected()
    deadline_ms = CLOCK.monotonic_ms() + 30_000
    connection.send(request_class(API_KEYS["list_groups"], 5)(), deadline_ms=deadline_ms)
    frame = b"\0\0\0\1\0" + bytes(6) + b"\xff\xff\xff\xff\x07"
    theirs.sendall(len(frame).to_bytes(4, "big") + frame)
    with pytest.raises(BrokenConnectionError, match=r"broker:9092 answered list_groups version 5 .* claims"):
        connection.receive(deadline_ms=deadline_ms)
    theirs.close()


class Dripping:
    """A socket at which a byte arrives, or leaves, each second."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.calls = 0

    def send(self, data: memoryview) -> int:
        self.calls += 1
        self._clock.advance(1_000)
        return 1

    def sendmsg(self, parts: list[memoryview]) -> int:
        return self.send(parts[0])

    def recv_into(self, buffer: memoryview) -> int:
        buffer[0] = 1
        return self.send(buffer)

    def recv(self, size: int, flags: int) -> bytes:
        return b"\1" * self.send(memoryview(b""))

    def settimeout(self, seconds: float) -> None: ...
    def setsockopt(self, level: int, option: int, value: bytes) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize("is_tls", [False, True])
@pytest.mark.parametrize(("deadline_ms", "waited_s"), [(10**9, 30), (5_000, 5)])
@pytest.mark.parametrize("do", [partial(Connection.send_frame, parts=[HEARTBEAT * 9_000]), Connection.receive_frame])
def test_a_broker_that_sends_or_takes_single_bytes_has_one_deadline(
    do: Callable[..., object], deadline_ms: int, waited_s: int, is_tls: bool
) -> None:
    """Each byte began the time of the request anew."""
    clock = ManualClock()
    slow: Any = Dripping(clock)
    connection = Connection(slow, host="b", port=9, settings=ClientSettings.from_mapping({}), clock=clock)
    connection._has_flags = not is_tls
    connection._in_flight.append((12, 4, 1))
    with pytest.raises(BrokenConnectionError, match="no answer in time"):
        do(connection, deadline_ms=deadline_ms)
    assert slow.calls == waited_s
