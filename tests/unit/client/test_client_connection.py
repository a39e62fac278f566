"""A connection that several brokers share, because they have one address."""

from __future__ import annotations

import socket

import pytest

from suiro.client.connection import Connection, build
from suiro.client.settings import ClientSettings
from suiro.clock import SystemClock
from suiro.errors import BrokenConnectionError, UsageError
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
