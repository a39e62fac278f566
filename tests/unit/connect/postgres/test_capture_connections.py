"""Connections to a server that accepts and says nothing: a frozen one, or a proxy without one behind it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from suiro.clock import SystemClock
from suiro.connect.postgres.server.database import Database, parameters
from suiro.connect.postgres.server.stream import Replication
from suiro.errors import BrokenConnectionError
from suiro.foundation.postgres_network import NETWORK, network_parameters

LEAST_S = 2
"""That libpq takes for a limit."""


def streamed(dsn: str) -> Replication:
    return Replication(dsn, "", start_lsn=0, what="read", clock=SystemClock())


@pytest.mark.parametrize("connect", [Database, partial(Database, replication=True), streamed])
def test_a_server_that_says_nothing_is_left(connect: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture that waits in libpq cannot be stopped either."""
    monkeypatch.setitem(NETWORK, "connect_timeout", LEAST_S)
    failed: list[BaseException] = []

    def run(dsn: str) -> None:
        try:
            connect(dsn)
        except BaseException as error:
            failed.append(error)

    with socket.create_server(("127.0.0.1", 0)) as server:
        dsn = f"host=127.0.0.1 port={server.getsockname()[1]} user=x dbname=x sslmode=disable gssencmode=disable"
        thread = threading.Thread(target=run, args=(dsn,), daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive(), "it waits"
    assert isinstance(failed[0], BrokenConnectionError)
    assert "timeout expired" in str(failed[0])


def test_a_server_that_is_too_old_takes_a_connection_to_be_told_so() -> None:
    """Postgres 13 and earlier refuse one that names a setting they do not have, which looked like a server that is
    away: the capture tried again for ever."""
    assert "idle_session_timeout" not in parameters("")["options"]


def test_what_the_user_gives_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert network_parameters({"keepalives_idle": 5}).keys() == NETWORK.keys() - {"keepalives_idle"}
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "300")
    assert "connect_timeout" not in network_parameters({})
