"""The first snapshot: all tables as of the LSN at which a new slot begins, read in parallel before the stream."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from suiro.clock import SystemClock
from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.encoded_rows import UnsupportedValueError
from suiro.connect.postgres.resources import Resources
from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.snapshot.ranges import RangeReader, chunk_size, ranges
from suiro.connect.postgres.snapshot.readers import SnapshotReaders
from suiro.connect.postgres.snapshot.snapshots import Snapshots
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
        readers = SnapshotReaders(options.dsn, snapshot, options.snapshot_readers, RangeReader())
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
