"""The readers of a first snapshot, when a connection cannot be made or fails."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, Self

import pytest

from suiro.connect.postgres.snapshot import exported
from suiro.connect.postgres.snapshot.ranges import Range
from suiro.errors import BrokenConnectionError, TransientError, UsageError

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


def test_a_failed_range_has_the_error_that_ends_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of an earlier range was read after it, in the failed transaction, whose error is fatal."""

    class Ranges:
        def __init__(self) -> None:
            self.failed = threading.Event()

        def read(self, database: Any, table: Any, selected: str, wanted: Range) -> tuple[bytes, Range]:
            if database.has_failed:
                raise UsageError("current transaction is aborted, commands ignored until its end")
            if wanted == RANGES[2]:
                database.has_failed = True
                self.failed.set()
                raise TransientError("the lock was not available")
            if wanted == RANGES[1]:
                assert self.failed.wait(30)
                return b"", Range(after=wanted.after, until=("b",))
            return b"", wanted

    with pytest.raises(TransientError, match="the lock was not available"):
        read(monkeypatch, Ranges(), left=2)
