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


def test_a_row_that_its_topic_refuses_is_not_taken_for_a_table_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request on the thread fails while the next table begins. The error was logged only, and the capture ended
    later with an error of the producer."""

    def start_reading(name: str) -> None:
        if name == "public.b":
            raise UsageError("a row is larger than its topic takes")

    class Readers:
        def __init__(self, *given: Any) -> None:
            pass

        def read(self, *given: Any) -> list[Any]:
            return []

        def close(self) -> None:
            pass

    monkeypatch.setattr(exported, "Database", _Database)
    monkeypatch.setattr(exported, "_Readers", Readers)
    monkeypatch.setattr(exported, "chunk_size", lambda *given: (1, 1))
    monkeypatch.setattr(exported, "ranges", lambda *given: iter(()))
    monkeypatch.setattr(_Database, "left", 1)
    names = ("public.a", "public.b")
    snapshots: Any = SimpleNamespace(
        running=names, start_reading=start_reading, read_rows=SimpleNamespace(expect=lambda *given: None)
    )
    resources: Any = SimpleNamespace(
        options=SimpleNamespace(dsn="dsn", snapshot_readers=1, chunk_rows=1),
        stopped=threading.Event(),
        tables=SimpleNamespace(
            published={name: object() for name in names}, schema_of=lambda table, is_final: SCHEMA, look=lambda: None
        ),
    )
    with pytest.raises(UsageError, match="larger than its topic takes"):
        exported.read_exported(snapshots, resources, "snapshot", 1, commit=lambda: None)


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
