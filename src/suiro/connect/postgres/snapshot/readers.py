"""Threads that read ranges of tables in parallel, all in one exported snapshot."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

from suiro.connect.postgres.encoding.encoded_rows import EncodedRows
from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.server.publication import Table
from suiro.connect.postgres.snapshot.ranges import Range, RangeReader
from suiro.connect.postgres.tables import TableSchema

_Reading = Future[tuple[Range, EncodedRows]]
"""The range that was read: the wanted one, or its beginning."""


class SnapshotReaders:
    """Threads that each read in the same exported snapshot; results come in the order of the ranges."""

    def __init__(self, dsn: str, snapshot: str, count: int, ranges: RangeReader) -> None:
        self._ranges = ranges
        self._tasks: queue.Queue[tuple[Table, TableSchema, Range, _Reading] | None] = queue.Queue()
        self._count = count
        self._databases: list[Database] = []
        self._threads = [
            threading.Thread(
                target=self._run, args=(dsn, snapshot), name=f"suiro-snapshot-{number}", daemon=True
            )
            for number in range(count)
        ]
        self._failure: BaseException | None = None
        for thread in self._threads:
            thread.start()

    def read(
        self, table: Table, schema: TableSchema, wanted: Iterator[Range]
    ) -> Iterator[tuple[Range, EncodedRows]]:
        waiting: deque[tuple[Range, _Reading]] = deque()

        def ask(one: Range) -> tuple[Range, _Reading]:
            future: _Reading = Future()
            self._tasks.put((table, schema, one, future))
            return one, future

        def first() -> tuple[Range, EncodedRows]:
            asked, future = waiting.popleft()
            read, rows = self._result(future)
            if read != asked:
                waiting.appendleft(ask(replace(asked, after=read.until)))
            return read, rows

        for one in wanted:
            waiting.append(ask(one))
            if one.blocks is None and one.after is None:
                yield first()
            while len(waiting) > self._count:
                yield first()
        while waiting:
            yield first()

    def _result(self, future: _Reading) -> tuple[Range, EncodedRows]:
        while True:
            try:
                return future.result(timeout=0.5)
            except TimeoutError:
                if self._failure is not None and not any(thread.is_alive() for thread in self._threads):
                    raise self._failure from None

    def close(self) -> None:
        for _ in self._threads:
            self._tasks.put(None)
        for database in list(self._databases):
            database.cancel()
        for thread in self._threads:
            thread.join()

    def _run(self, dsn: str, snapshot: str) -> None:
        try:
            with Database(dsn) as database, database.snapshot(snapshot):
                self._databases.append(database)
                while (task := self._tasks.get()) is not None:
                    table, schema, wanted, future = task
                    try:
                        data, read = self._ranges.read(database, table, schema.selected, wanted)
                        future.set_result((read, schema.encoder.encode_copy(data)))
                    except BaseException as error:
                        future.set_exception(error)
                        raise
        except BaseException as error:  # noqa: BLE001 - the future or the next call raises it
            self._failure = error
