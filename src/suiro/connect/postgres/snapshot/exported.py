"""The first snapshot: all tables as of the LSN at which a new slot begins, read in parallel before the stream."""

from __future__ import annotations

import logging
import queue
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
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
from suiro.errors import SuiroError, UsageError

logger = logging.getLogger(__name__)

COMMIT_ROWS = 100_000


def read_exported(
    snapshots: Snapshots,
    resources: Resources,
    snapshot: str,
    lsn: int,
    *,
    commit: Callable[[], None],
) -> None:
    """Reads all running tables in the exported snapshot, and calls `commit` after some ranges. Returns early when
    stopped, or when a table has changed since the slot was created: the rest is read while changes flow."""
    options, tables, clock = resources.options, resources.tables, SystemClock()
    is_stopped = resources.stopped.is_set
    with Database(options.dsn) as splitter, splitter.snapshot(snapshot):
        waiting = 0
        readers = _Readers(options.dsn, snapshot, options.snapshot_readers)
        try:
            for name in snapshots.running:
                table = tables.published[name]
                snapshots.start_reading(name)
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
                        engine.load(timeout_s=0 if read.is_last else engine.LOAD_TIMEOUT_S)
                    if is_stopped():
                        return
        except UsageError as error:
            tables.look()
            is_another = tables.published.get(name) != table
            if not is_another and isinstance(error, UnsupportedValueError):
                is_another = tables.is_outdated(table, schema, error)
            if not is_another:
                raise
            logger.info("%s. The rest is read while changes flow", error)
        finally:
            readers.close()


_Reading = Future[tuple[Range, EncodedRows]]
"""The range that was read: the wanted one, or its beginning."""


class _Readers:
    """Threads and connections that read in the same exported snapshot; results come in the order of the ranges."""

    def __init__(self, dsn: str, snapshot: str, count: int) -> None:
        self._ranges = RangeReader()
        self._count = count
        self._databases: list[Database] = []
        self._free: queue.SimpleQueue[Database] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        with ExitStack() as connections:
            for _ in range(count):
                try:
                    database = connections.enter_context(Database(dsn))
                    connections.enter_context(database.snapshot(snapshot))
                except SuiroError as error:
                    # A server or a role may have no connection left. One is enough.
                    if not self._databases:
                        raise
                    logger.info("the tables are read over %d connections: %s", len(self._databases), error)
                    break
                self._databases.append(database)
                self._free.put(database)
            self._connections = connections.pop_all()
        self._threads = ThreadPoolExecutor(len(self._databases), thread_name_prefix="suiro-snapshot")

    def read(self, table: Table, schema: TableSchema, wanted: Iterator[Range]) -> Iterator[tuple[Range, EncodedRows]]:
        waiting: deque[tuple[Range, _Reading]] = deque()

        def ask(one: Range) -> tuple[Range, _Reading]:
            return one, self._threads.submit(self._read, table, schema, one)

        def first() -> tuple[Range, EncodedRows]:
            asked, future = waiting.popleft()
            read, rows = future.result()
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

    def _read(self, table: Table, schema: TableSchema, wanted: Range) -> tuple[Range, EncodedRows]:
        database = self._free.get()
        try:
            # Postgres refuses all that follows in a transaction that failed, and does not repeat why.
            if self._failure is not None:
                raise self._failure
            data, read = self._ranges.read(database, table, schema.selected, wanted)
            return read, schema.encoder.encode_copy(data)
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._free.put(database)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for database in self._databases:
            database.cancel()
        self._threads.shutdown()
        self._connections.close()
