"""Blocks of both ways to read a slot: the replication stream, where messages come one at a time, and SQL."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from support.postgres import Postgres
from support.postgres_rows import Connection, slot_over_all

from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.pgoutput import Block
from suiro.connect.postgres.server import stream
from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.server.slot_peek import peek_changes
from suiro.connect.postgres.server.stream import BLOCK_BYTES, ReplicationStream


class Slow:
    """In place of a connection: the network brings one message, then nothing for a moment."""

    confirmed = 0

    def __init__(self, messages: Iterator[bytes]) -> None:
        self._messages = messages
        self._is_there = False

    def read(self) -> tuple[int, bytes] | None:
        self._is_there = not self._is_there
        message = next(self._messages, None) if self._is_there else None
        return None if message is None else (1, message)

    def send_status(self) -> None:
        pass

    def close(self) -> None:
        pass


def reading(messages: list[bytes], monkeypatch: pytest.MonkeyPatch) -> ReplicationStream:
    made: Any = Slow(iter(messages))
    monkeypatch.setattr(stream, "Replication", lambda *arguments, **options: made)
    return ReplicationStream("", slot="s", publication="p", start_lsn=0)


def blocks_of(reading: ReplicationStream, looks: int) -> list[Block]:
    return [block for _ in range(looks) if (block := reading.read_block()) is not None]


def test_a_transaction_of_large_rows_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from the last look on, none of them was large: as many as 30,000 rows of a megabyte were in memory."""
    row = b"I" + bytes(BLOCK_BYTES // 4)
    messages = [
        struct.pack(">cqqI", b"B", 1, 0, 7),
        *[row] * 20,
        struct.pack(">cBqqq", b"C", 0, 1, 2, 0),
    ]
    slow = reading(messages, monkeypatch)
    found = blocks_of(slow, 2 * len(messages))
    slow.close()
    assert sum(len(block) for block in found) == len(messages)
    assert max(len(block.buffer) for block in found) < 2 * BLOCK_BYTES


def test_a_logical_message_of_no_transaction_waits_for_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream in which one waits is not idle: on a standby the position stood until the next commit of a table."""
    message = b"M" + struct.pack(">bq", 0, 100) + b"other\0" + struct.pack(">I", 1) + b"x"
    slow = reading([message], monkeypatch)
    found = blocks_of(slow, 2)
    assert slow.is_idle
    slow.close()
    assert [bytes(block.buffer) for block in found] == [message]


def test_a_stream_abort_where_nothing_is_streamed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Postgres 18 sends it. It waited for the next commit, and a stream in which a message waits is not idle."""
    slow = reading([struct.pack(">cII", b"A", 7, 8)], monkeypatch)
    assert blocks_of(slow, 2) == []
    assert slow.is_idle
    slow.close()


@pytest.mark.parametrize("compiled", [False, True])
def test_logical_messages_of_no_transaction_behind_the_last_commit(
    postgres: Postgres, connection: Connection, compiled: bool
) -> None:
    """Any role of the database may write them. What was read by SQL ended with an error, at each start again."""
    connection.execute("create table if not exists peeked (k int primary key)")
    with slot_over_all(connection, "peeked"), Database(postgres.dsn) as database:
        connection.execute("insert into peeked values (%s)", [int(compiled)])
        connection.execute("select pg_logical_emit_message(false, 'other', 'x') from generate_series(1, 3)")
        connection.execute("checkpoint")  # only what is flushed is decoded
        found: list[Block] = []
        with engine.choose(compiled=compiled):
            count = peek_changes(
                database,
                slot="peeked",
                publication="peeked",
                upto=database.insert_position(),
                on_block=found.append,
                check=lambda: None,
            )
    kinds = [bytes(block.buffer[start : start + 1]) for block in found for start in block.starts.tolist()]
    assert kinds == [b"B", b"R", b"I", b"C", b"M", b"M", b"M"]
    assert count == len(kinds)
