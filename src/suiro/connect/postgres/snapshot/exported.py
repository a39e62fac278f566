"""The first snapshot: all tables as of the LSN at which a new slot begins, read in parallel before the stream."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace

import numpy as np

from suiro.clock import SystemClock
from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.encoded_rows import EncodedRows, UnsupportedValueError
from suiro.connect.postgres.resources import Resources
from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.server.publication import Table
from suiro.connect.postgres.snapshot.ranges import Range, RangeReader, chunk_size, ranges
from suiro.connect.postgres.snapshot.snapshots import Snapshots
from suiro.connect.postgres.tables import TableSchema
from suiro.errors import UsageError

logger = logging.getLogger(__name__)

COMMIT_ROWS = 100_000


def read_exported(
    snapshots: Snapshots,
    resources: Resources,
    snapshot: str,
    lsn: int,
    *,
    commit: Callable[[], None],
    is_stopped: Callable[[], bool],
) -> None:
    """Reads all running tables in the exported snapshot, and calls `commit` after some ranges. Returns early when
    stopped, or when a table has changed since the slot was created: the rest is read while changes flow."""
    options, tables, clock = resources.options, resources.tables, SystemClock()
    with Database(options.dsn) as splitter, splitter.snapshot(snapshot):
        waiting = 0
        readers = _Readers(options.dsn, snapshot, options.snapshot_readers)
        try:
            for name in snapshots.running:
                snapshots.start_reading(name)
                table = tables.published[name]
                schema = tables.schema_of(table, is_final=True)
                size, expected = chunk_size(splitter, table, options.chunk_rows)
                snapshots.read_rows.expect(name, expected)
                for read, rows in readers.read(table, schema, ranges(splitter, table, None, size)):
                    written = np.arange(len(rows))
                    snapshots.emit(name, schema, read, rows, written, lsn=lsn, read_us=clock.wall_ms() * 1000)
                    waiting += len(rows)
                    snapshots.conclude(lsn)
                    # The first range shows soon that the capture works. Later commits have more rows.
                    if waiting >= COMMIT_ROWS or read.after is None or read.is_last or is_stopped():
                        commit()
                        waiting = 0
                        engine.load(wait=True, timeout_s=0 if read.is_last else engine.LOAD_TIMEOUT_S)
                    if is_stopped():
                        return
        except UsageError as error:
            tables.look()
            is_another = tables.published.get(name) != table
            if not is_another and isinstance(error, UnsupportedValueError):  # perhaps of a composite type
                is_another = tables.schema_of(table).relation != schema.relation
            if not is_another:
                raise
            logger.info("%s. The rest is read while changes flow", error)
        finally:
            readers.close()


_Reading = Future[tuple[Range, EncodedRows]]
"""The range that was read: the wanted one, or its beginning."""


class _Readers:
    """Threads that each read in the same exported snapshot; results come in the order of the ranges."""

    def __init__(self, dsn: str, snapshot: str, count: int) -> None:
        self._ranges = RangeReader()
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
