"""The replication protocol against a real Postgres: the slot moves where it was told to, and nowhere else."""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

import pytest
from support.capturing import Connection, dsn_of
from support.postgres import Postgres
from support.waiting import wait_until

from suiro.clock import SystemClock
from suiro.connect.postgres.server.database import lsn_text, parse_lsn
from suiro.connect.postgres.server.stream import Replication
from suiro.errors import BrokenConnectionError, UsageError

END_OF_THE_SESSION = "select pg_terminate_backend(pg_backend_pid())"
Opened = tuple[Replication, str]


def begin(postgres: Postgres, prefix: str, slot: str, start: int) -> Replication:
    command = (
        f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(start)}'
        f" (proto_version '2', publication_names '{slot}', messages 'true')"
    )
    return Replication(dsn_of(postgres, prefix), command, start_lsn=start, what="read", clock=SystemClock())


def confirmed(connection: Connection, slot: str) -> int:
    found: Any = connection.execute(
        "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s", (slot,)
    ).fetchone()
    return parse_lsn(found[0])


@pytest.fixture
def opened(postgres: Postgres, connection: Connection, prefix: str) -> Iterator[Opened]:
    slot = f"suiro_{prefix}"
    connection.execute("create table t (k int primary key)")
    connection.execute("create table unrelated (k int)")
    connection.execute(f"create publication {slot} for table t".encode())
    connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    replication = begin(postgres, prefix, slot, confirmed(connection, slot))
    yield replication, slot
    replication.close()


def read_until(replication: Replication, lsn: int) -> list[bytes]:
    """What comes until the server has said that it read its log up to there."""
    found: list[bytes] = []

    def is_there() -> bool:
        select.select([replication], [], [], 0.1)
        while (message := replication.read()) is not None:
            found.append(message[1])
        replication.send_status()
        return replication.wal_end >= lsn

    wait_until(is_there, 60, "a sign of life")
    return found


def end_of_log(connection: Connection) -> int:
    found: Any = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
    return parse_lsn(found[0])


def test_what_others_write_does_not_move_the_slot(opened: Opened, connection: Connection) -> None:
    replication, slot = opened
    start = replication.confirmed
    connection.execute("insert into unrelated select generate_series(1, 1000)")
    assert read_until(replication, end_of_log(connection)) == []
    assert confirmed(connection, slot) <= start
    connection.execute("insert into t values (1)")
    messages = read_until(replication, end_of_log(connection))
    assert [message[:1] for message in messages] == [b"B", b"R", b"I", b"C"]
    assert confirmed(connection, slot) <= start
    replication.confirmed = replication.wal_end
    replication.send_status()
    wait_until(lambda: confirmed(connection, slot) == replication.confirmed, 60, "the slot to move")


def test_errors_of_the_server_say_what_they_are(
    opened: Opened, postgres: Postgres, connection: Connection, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replication, slot = opened
    with pytest.raises(BrokenConnectionError, match="is active for PID"):
        begin(postgres, prefix, slot, 0)
    with pytest.raises(UsageError, match="does not exist"):
        begin(postgres, prefix, "absent", 0)
    connection.execute(
        "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s", (slot,)
    )

    def keep_alive() -> None:
        while True:
            select.select([replication], [], [], 1)
            replication.send_status()

    with pytest.raises(BrokenConnectionError, match=r"terminat|closed"):
        keep_alive()
    with pytest.raises(BrokenConnectionError, match="wait for the replication stream: lost Postgres"):
        select.select([replication], [], [], 0)
    with pytest.raises(BrokenConnectionError, match=r"terminat|closed"):
        replication.read()
    monkeypatch.setattr("suiro.connect.postgres.server.stream.lifted_limits", lambda version: END_OF_THE_SESSION)
    with pytest.raises(BrokenConnectionError, match="read: lost Postgres"):
        begin(postgres, prefix, slot, 0)
