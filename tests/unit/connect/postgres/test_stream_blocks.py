"""Blocks of the replication stream, where messages come one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suiro.connect.postgres.encoding.blocks import begin_message, commit_message
from suiro.connect.postgres.server import stream
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


def test_a_transaction_of_large_rows_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from the last look on, none of them was large: as many as 30,000 rows of a megabyte were in memory."""
    row = b"I" + bytes(BLOCK_BYTES // 4)
    messages = [
        begin_message(lsn=1, commit_us=0, xid=7),
        *[row] * 20,
        commit_message(lsn=1, end_lsn=2, commit_us=0),
    ]
    made: Any = Slow(iter(messages))
    monkeypatch.setattr(stream, "Replication", lambda *arguments, **options: made)
    reading = ReplicationStream("", slot="s", publication="p", start_lsn=0, directory=tmp_path / "spools")
    found = [block for _ in [*messages, *messages] for block in reading.blocks()]
    reading.close()
    assert sum(len(block) for block in found) == len(messages)
    assert max(len(block.buffer) for block in found) < 2 * BLOCK_BYTES
