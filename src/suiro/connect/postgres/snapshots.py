"""Snapshots: whole tables into their topics, so that what the stream brings has something to change.

Two ways, one state. A slot that was just created exports a snapshot of the very place where its changes begin: all
ranges are read in it, side by side, and the stream starts afterwards. Where that snapshot is gone (a kill, a slot
that was there before, a table asked for or added later) ranges are read one by one while changes flow, and merged by
`Window`. The position says for each table how far it is, so both go on where they were.

Always true: a table is done only when its topic has every row, and no live key that the table does not have.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from suiro.client import Client
from suiro.clock import SystemClock
from suiro.connect.postgres import engine
from suiro.connect.postgres.avro_rows import EncodedRows
from suiro.connect.postgres.blocks import Int64s
from suiro.connect.postgres.changes import MESSAGE_PREFIX, Changes
from suiro.connect.postgres.database import Database
from suiro.connect.postgres.delivery import Delivery, binary_column
from suiro.connect.postgres.headers import snapshot_headers
from suiro.connect.postgres.lsn import parse_lsn
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.postgres.publication import Table
from suiro.connect.postgres.ranges import Range, next_range, ranges, read_range, rows_in_a_chunk
from suiro.connect.postgres.tables import Form, Tables
from suiro.connect.postgres.topic_state import KeyedValues, ends, load_older
from suiro.connect.postgres.visibility import Visibility
from suiro.connect.postgres.window import Window
from suiro.errors import ConfigError

__all__ = ["Snapshots", "TableState"]

logger = logging.getLogger(__name__)

PART = "table/"
PORTION = 50_000
COMMIT_ROWS = 100_000
RETRY_S = 0.01


@dataclass(slots=True, kw_only=True)
class TableState:
    """A part of the position. `since`: the topic's ends when the snapshot began; what is older and not seen goes."""

    oid: int
    running: bool
    after: list[str] | None = None
    since: dict[str, int] = field(default_factory=dict)
    columns: list[list[Any]] = field(default_factory=list)
    file: int = 0
    key_schema_id: int = 0

    def matches(self, table: Table) -> bool:
        """Whether every row's value in the topic is as the table has it, but for what the stream tells."""
        if self.oid != table.oid:
            return False
        now = columns_of(table)
        if now == self.columns:
            return True
        before = {column[0]: column for column in self.columns}
        highest = max((column[3] for column in self.columns), default=0)
        if self.file != table.file:
            return False  # rewritten: rows have values that no change told
        for column in table.columns:
            known = before.get(column.name)
            if known is None and (column.fills_itself or column.number <= highest):
                return False  # has a value in rows from before, or is an older column under a new name
            if known is not None and known[1] != column.type_oid:
                return False
        return True


def columns_of(table: Table) -> list[list[Any]]:
    return [[one.name, one.type_oid, one.typmod, one.number] for one in table.columns]


class Snapshots:
    """`states` are of all captured tables; `changed` are those to write with the next position."""

    def __init__(
        self,
        *,
        options: CaptureOptions,
        database: Database,
        tables: Tables,
        delivery: Delivery,
        client: Client,
        parts: dict[str, Any],
        directory: Path,
    ) -> None:
        self._options = options
        self._database = database
        self._tables = tables
        self._delivery = delivery
        self._client = client
        self._directory = directory
        self._clock = SystemClock()
        self._marks = 0
        self.states = {
            name[len(PART) :]: TableState(**value) for name, value in parts.items() if name.startswith(PART)
        }
        self._changed: set[str] = set()
        self.rows = 0

    # -- which tables --------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        return not any(state.running for state in self.states.values())

    @property
    def running(self) -> list[str]:
        return [name for name, state in self.states.items() if state.running]

    def is_being_read(self, topic: str) -> bool:
        return any(self._options.topic(*name.split(".", 1)) == topic for name in self.running)

    def take_changed(self) -> dict[str, Any]:
        """Parts for the next position."""
        found = {
            PART + name: asdict(self.states[name]) if name in self.states else None for name in self._changed
        }
        self._changed.clear()
        return found

    @property
    def has_changed(self) -> bool:
        return bool(self._changed)

    def consider(self, table: Table, form: Form | None = None) -> None:
        """A table that is new, or whose rows have values that no change told, is read from the beginning."""
        state = self.states.get(table.full_name)
        if (
            state is not None
            and state.matches(table)
            and (form is None or form.key_schema_id == state.key_schema_id)
        ):
            if state.columns != columns_of(table) or state.file != table.file:
                state.columns, state.file = columns_of(table), table.file
                self._changed.add(table.full_name)
            return
        if state is not None:
            logger.info("table %s was changed: it is read again", table.full_name)
        self.begin(table)

    def begin(self, table: Table) -> None:
        """From the beginning."""
        form = self._tables.form_of(table)
        self._delivery.create_topics([form.topic], partitions=self._options.partitions)
        found = ends(self._client, form.topic, self._delivery.partition_count(form.topic))
        self.states[table.full_name] = TableState(
            oid=table.oid,
            running=True,
            since={str(partition): end for partition, end in found.items() if end},
            columns=columns_of(table),
            file=table.file,
            key_schema_id=form.key_schema_id,
        )
        self._changed.add(table.full_name)

    def forget(self, full_name: str) -> None:
        if self.states.pop(full_name, None) is not None:
            self._changed.add(full_name)

    # -- in the snapshot that a new slot exported ------------------------------------------------------------

    def read_exported(
        self, snapshot: str, lsn: int, *, commit: Callable[[], None], is_stopped: Callable[[], bool]
    ) -> None:
        """All running tables; `commit` behind a range now and then. Returns early when stopped."""
        with Database(self._options.dsn) as splitter, splitter.snapshot(snapshot):
            waiting = 0
            readers = _Readers(self._options.dsn, snapshot, self._options.snapshot_readers)
            try:
                for name in self.running:
                    table = self._tables.facts[name]
                    form = self._tables.form_of(table, is_final=True)
                    size = rows_in_a_chunk(splitter, table, self._options.chunk_rows)
                    for read, rows in readers.read(table, form, ranges(splitter, table, None, size)):
                        self._emit(
                            name, form, read, rows, np.arange(len(rows)), lsn=lsn, read_us=self._now_us()
                        )
                        waiting += len(rows)
                        # The first range shows soon that it works; after that a commit is worth more rows.
                        if waiting >= COMMIT_ROWS or read.after is None or read.is_last or is_stopped():
                            commit()
                            waiting = 0
                            engine.load(wait=True, patience_s=0 if read.is_last else engine.PATIENCE_S)
                        if is_stopped():
                            return
            finally:
                readers.close()

    # -- beside the stream -------------------------------------------------------------------------------------

    def step(self, changes: Changes) -> None:
        """Between transactions: reads the next range, unless one waits for its mark."""
        if changes.window is not None or self.is_done:
            return
        name = self.running[0]
        table = self._tables.facts.get(name)
        if table is None or table.oid != self.states[name].oid:
            schema, _, short = name.partition(".")
            table = self._tables.fresh_facts(schema, short)
            if table.oid != self.states[name].oid:
                self.begin(table)
        with Database(self._options.dsn) as database:
            changes.window = self._read_window(database, table, changes)
        self._database.emit(
            MESSAGE_PREFIX, json.dumps({"capture": self._options.name, "mark": changes.window.mark})
        )

    def _read_window(self, database: Database, table: Table, changes: Changes) -> Window:
        state = self.states[table.full_name]
        size = rows_in_a_chunk(database, table, self._options.chunk_rows)
        if not table.key_is_unique:
            self._check_small_enough(database, table)
        while True:
            with database.snapshot():
                # Locked before anything is looked at: the columns stay as they are until the rows are read.
                database.rows(
                    f"lock table {table.sql_name} in access share mode", what=f"read {table.full_name}"
                )
                text, lsn = database.rows(
                    "select pg_current_snapshot()::text, case when pg_is_in_recovery() then pg_last_wal_replay_lsn()"
                    " else pg_current_wal_insert_lsn() end",
                    what="take a snapshot",
                )[0]
                visible = Visibility.parse(text)
                if changes.recent.all_seen_by(visible):
                    changes.recent.forget()
                    now = self._tables.fresh_facts(table.schema, table.name)
                    form = self._tables.form_of(now, database)
                    if form.key_schema_id != state.key_schema_id:
                        self.begin(now)
                        state = self.states[table.full_name]
                    after = None if state.after is None else tuple(state.after)
                    read = next_range(database, now, after, size) if now.key_is_unique else Range()
                    rows = form.encoder.encode_copy(read_range(database, now, form.selected, read))
                    break
            threading.Event().wait(RETRY_S)
        self._marks += 1
        return Window(
            table=table.full_name,
            form=form,
            rows=rows,
            read=read,
            snapshot=visible,
            lsn=parse_lsn(lsn),
            read_us=self._now_us(),
            mark=f"{self._clock.wall_ms()}-{self._marks}",
        )

    def _check_small_enough(self, database: Database, table: Table) -> None:
        (size,) = database.rows(
            "select coalesce(sum(pg_table_size(relid)), 0)::int8 from (select relid from pg_partition_tree(%(oid)s)"
            " union select %(oid)s::oid::regclass) t",
            {"oid": table.oid},
            what=f"ask how large {table.full_name} is",
        )[0]
        limit = 4 * self._options.memory_bytes
        if size > limit:
            raise ConfigError(
                f"{table.full_name} has no unique key, so beside live changes it can be read only in one piece, and it "
                f"is too large for that ({size:,} bytes; the limit is {limit:,}). Choose: give it a unique index over "
                "NOT NULL columns; or stop the capture, drop its slot and start with --snapshot new"
            )

    def passed(self, changes: Changes) -> None:
        """The stream has come to the window's mark: what is left of its rows goes out."""
        window, changes.window = changes.window, None
        assert window is not None
        if window.table not in self.states:
            return
        window.rows = _with_schema(window.rows, self._tables.register_value(window.form))
        written = window.left()
        self._emit(
            window.table,
            window.form,
            window.read,
            window.rows,
            written,
            lsn=window.lsn,
            read_us=window.read_us,
        )
        changes.note_snapshot_rows(window.form.topic, window.rows, written)

    # -- rows into the topic -------------------------------------------------------------------------------------

    def _emit(
        self,
        name: str,
        form: Form,
        read: Range,
        rows: EncodedRows,
        written: Int64s,
        *,
        lsn: int,
        read_us: int,
    ) -> None:
        count = len(written)
        if count:
            keys, values = rows.keys, rows.values
            if count < len(rows):
                places = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(written)])
                keys, values = keys.take(places), values.take(places)
            self._delivery.create_topics([form.topic], partitions=self._options.partitions)
            self._delivery.add(
                form.topic,
                keys=keys,
                values=values,
                timestamps=np.full(count, read_us // 1000, np.int64),
                headers=snapshot_headers(count, lsn=lsn, read_us=read_us),
            )
        self.rows += count
        state = self.states[name]
        state.after = list(read.until) if read.until is not None else state.after
        self._changed.add(name)
        if read.is_last:
            if state.since:
                self._remove_unseen(form, state, lsn=lsn, read_us=read_us)
            state.running, state.after, state.since = False, None, {}
            logger.info("table %s is read", name)

    def _remove_unseen(self, form: Form, state: TableState, *, lsn: int, read_us: int) -> None:
        """Tombstones for keys that were last written before this snapshot began: the table does not have them."""
        self._delivery.flush()
        keys = KeyedValues(self._directory / "unseen.keys", memory_bytes=self._options.memory_bytes)
        try:
            since = {int(partition): end for partition, end in state.since.items()}
            load_older(keys, self._client, form.topic, self._delivery.partition_count(form.topic), since)
            portion: list[bytes] = []
            gone = 0
            for key in keys.all_keys():
                portion.append(key)
                gone += 1
                if len(portion) == PORTION:
                    self._tombstones(form.topic, portion, lsn, read_us)
                    portion = []
            if portion:
                self._tombstones(form.topic, portion, lsn, read_us)
            logger.info("topic %s: %d keys are gone from the table", form.topic, gone)
        finally:
            keys.close()

    def _tombstones(self, topic: str, keys: list[bytes], lsn: int, read_us: int) -> None:
        self._delivery.add(
            topic,
            keys=binary_column(keys),
            values=pa.nulls(len(keys), pa.binary()),
            timestamps=np.full(len(keys), read_us // 1000, np.int64),
            headers=snapshot_headers(len(keys), lsn=lsn, read_us=read_us, operation="gone"),
        )

    def _now_us(self) -> int:
        return self._clock.wall_ms() * 1000


def _with_schema(rows: EncodedRows, schema_id: int) -> EncodedRows:
    """The rows were encoded when their schema had no id yet: it stands behind the first byte of each value."""
    data = rows.value_data if rows.value_data.flags.writeable else rows.value_data.copy()
    places = rows.value_offsets[:-1].astype(np.int64)
    for byte, number in enumerate(schema_id.to_bytes(4, "big"), start=1):
        data[places + byte] = number
    return replace(rows, value_data=data)


class _Readers:
    """Threads that each read in the same exported snapshot; results come in the order of the ranges."""

    def __init__(self, dsn: str, snapshot: str, count: int) -> None:
        self._tasks: queue.Queue[tuple[Table, Form, Range, Future[EncodedRows]] | None] = queue.Queue()
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

    def read(self, table: Table, form: Form, wanted: Iterator[Range]) -> Iterator[tuple[Range, EncodedRows]]:
        waiting: deque[tuple[Range, Future[EncodedRows]]] = deque()
        for one in wanted:
            future: Future[EncodedRows] = Future()
            waiting.append((one, future))
            self._tasks.put((table, form, one, future))
            if len(waiting) > self._count or (one.blocks is None and one.after is None):
                yield self._first(waiting)
        while waiting:
            yield self._first(waiting)

    def _first(self, waiting: deque[tuple[Range, Future[EncodedRows]]]) -> tuple[Range, EncodedRows]:
        read, future = waiting.popleft()
        while True:
            try:
                return read, future.result(timeout=0.5)
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
                    table, form, wanted, future = task
                    try:
                        future.set_result(
                            form.encoder.encode_copy(read_range(database, table, form.selected, wanted))
                        )
                    except BaseException as error:
                        self._failure = error
                        future.set_exception(error)
                        return
        except BaseException as error:
            self._failure = error
