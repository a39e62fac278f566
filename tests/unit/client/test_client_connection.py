"""A connection that several brokers share, because they have one address."""

from __future__ import annotations

import socket

import pytest

from suiro.client.connection import Connection
from suiro.client.settings import ClientSettings
from suiro.clock import SystemClock
from suiro.errors import BrokenConnectionError

HEARTBEAT = b"\x00\x0c\x00\x04"


def test_a_connection_that_broke_is_broken_for_each_request() -> None:
    """The second request of two was an error of the program."""
    ours, theirs = socket.socketpair()
    clock = SystemClock()
    connection = Connection(
        ours, host="broker", port=9092, settings=ClientSettings.from_mapping({}), clock=clock
    )
    deadline_ms = clock.monotonic_ms() + 30_000
    for number in (1, 2):
        connection.send_frame([HEARTBEAT + number.to_bytes(4, "big")], deadline_ms=deadline_ms)
    theirs.close()
    for receive in (connection.receive, connection.receive, connection.receive_frame):
        with pytest.raises(BrokenConnectionError, match="broker:9092"):
            receive(deadline_ms=deadline_ms)
    connection.close()
