"""The readers of a first snapshot, when a connection cannot be made or fails."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, Self

import pytest

from suiro.connect.postgres.snapshot import exported
from suiro.connect.postgres.snapshot.ranges import Range
from suiro.errors import BrokenConnectionError

RANGES = [Range(until=("a",)), Range(after=("a",), until=("c",)), Range(after=("c",))]
SCHEMA: Any = SimpleNamespace(selected="*", encoder=SimpleNamespace(encode_copy=lambda data: data))


class _Database:
    """A connection. The role may have `left` connections."""

    left = 0

    def __init__(self, dsn: str) -> None:
        if not _Database.left:
            raise BrokenConnectionError("connect: lost Postgres, or could not reach it: too many connections")
        _Database.left -= 1
        self.has_failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def snapshot(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def cancel(self) -> None:
        pass


def read(monkeypatch: pytest.MonkeyPatch, ranges: Any, *, left: int) -> list[Range]:
    monkeypatch.setattr(exported, "Database", _Database)
    monkeypatch.setattr(exported, "RangeReader", lambda: ranges)
    monkeypatch.setattr(_Database, "left", left)
    readers = exported._Readers("dsn", "snapshot", 2)
    table: Any = None
    try:
        return [one for one, _ in readers.read(table, SCHEMA, iter(RANGES))]
    finally:
        readers.close()


def test_a_server_may_have_fewer_connections_than_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ranges:
        def read(self, database: Any, table: Any, selected: str, wanted: Range) -> tuple[bytes, Range]:
            return b"", wanted

    assert read(monkeypatch, Ranges(), left=1) == RANGES
    with pytest.raises(BrokenConnectionError):
        read(monkeypatch, Ranges(), left=0)
