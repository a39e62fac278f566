"""Copies whole tables into their topics, so that later changes apply to complete data.

There are two ways, with the same state. A new slot exports a snapshot of the LSN at which its changes start: all ranges
are read in it, in parallel, and the stream starts afterwards. If that snapshot is not available (after a kill, with an
existing slot, for a table that was added or requested later), ranges are read one by one while changes flow, and merged
by `Window`. The position records the progress of each table, so both ways resume where they were. Rows to select again
(`reselect`) are read like a range, alternating with ranges.

A table is complete when its topic has every row, and no live key that the table does not have.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from suiro.client import Client
from suiro.clock import SystemClock
from suiro.connect.postgres.changes import Changes
from suiro.connect.postgres.delivery import Delivery
from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.blocks import Int64s
from suiro.connect.postgres.encoding.encoded_rows import EncodedRows, UnsupportedValueError
from suiro.connect.postgres.encoding.headers import snapshot_headers
from suiro.connect.postgres.encoding.names import quoted
from suiro.connect.postgres.encoding.schemas import Relation
from suiro.connect.postgres.log_messages import emit_heartbeat, emit_mark
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.postgres.progress import ReadRows, TableProgress
from suiro.connect.postgres.server.database import LOCK_TIMEOUT_MS, Database, LockNotAvailableError
from suiro.connect.postgres.server.publication import Table, TableDroppedError
from suiro.connect.postgres.snapshot.ranges import (
    Range,
    RangeReader,
    check_small_enough,
    chunk_size,
    first_rows,
    in_order,
    invalid_key,
    keys_after,
    ranges,
    read_keys,
)
from suiro.connect.postgres.snapshot.readers import SnapshotReaders
from suiro.connect.postgres.snapshot.reselect import ReselectKeys
from suiro.connect.postgres.snapshot.table_state import TableState
from suiro.connect.postgres.snapshot.tombstones import SnapshotTombstones
from suiro.connect.postgres.snapshot.topic_state import NEVER, ends
from suiro.connect.postgres.snapshot.visibility import Visibility
from suiro.connect.postgres.snapshot.visibility_wait import VisibilityWait
from suiro.connect.postgres.snapshot.window import Window
from suiro.connect.postgres.tables import Tables, TableSchema
from suiro.errors import ConfigError, DataLossError, UsageError

logger = logging.getLogger(__name__)

PART = "table/"
COMMIT_ROWS = 100_000
FIRST_PAUSE_MS = 100  # before a table that is locked is tried again; then twice as long each time
LONGEST_PAUSE_MS = 10_000


class Snapshots:
    """The snapshots of one session. `states` has every captured table."""

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
        is_standby: bool,
        on_begin: Callable[[str], None],
    ) -> None:
        self._options = options
        self._database = database
        self._tables = tables
        self._delivery = delivery
        self._client = client
        self._tombstones = SnapshotTombstones(
            delivery, client, directory=directory, memory_bytes=options.memory_bytes
        )
        self._is_standby = is_standby
        self._on_begin = on_begin
        self._clock = SystemClock()
        self._heartbeat_lsn = 0  # a heartbeat was written after this place
        self._ranges = RangeReader()
        self._reselects_first = True  # in turn with ranges, so that neither delays the other
        self._locked: dict[str, tuple[int, int]] = {}  # by table: when to try again, and the last pause
        self.wait = VisibilityWait(database)
        self.states = {
            name[len(PART) :]: TableState(**value) for name, value in parts.items() if name.startswith(PART)
        }
        self.reselect = ReselectKeys(parts, limit=options.owed_keys_max)
        self._changed: set[str] = set()  # tables whose state goes into the next position
        self._read_rows = ReadRows(self.states)
        self.rows = 0

    # -- which tables --------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        return not self.reselect.tables and not any(state.running for state in self.states.values())

    @property
    def running(self) -> list[str]:
        return [name for name, state in self.states.items() if state.running]

    def progress(self) -> tuple[TableProgress, ...]:
        """By table. Called by any thread."""
        return self._read_rows.progress(self.states, self._locked, self._topic)

    def drain_changed(self) -> dict[str, Any]:
        """Returns the changed parts of the position, and resets the changes."""
        found = {
            PART + name: asdict(self.states[name]) if name in self.states else None for name in self._changed
        }
        self._changed.clear()
        return found | self.reselect.drain_changed()

    @property
    def has_changed(self) -> bool:
        return bool(self._changed) or self.reselect.has_changed

    def consider(self, table: Table, schema: TableSchema | None = None) -> None:
        """Begins a snapshot of a table that is new, that got values without a change, or whose topic was deleted."""
        state = self.states.get(table.full_name)
        if state is None:
            self.begin(table)
            return
        topic_id = self._delivery.topic_id(self._options.topic(table.schema, table.name))
        if not state.is_of_topic(topic_id):
            logger.info("table %s has lost its topic, which was deleted: it is read again", table.full_name)
            self.begin(table, lost_changes=True)
        elif not state.matches(table) or (schema is not None and schema.key_schema_id != state.key_schema_id):
            logger.info("table %s was changed: it is read again", table.full_name)
            self.begin(table)
        elif state.note(table) or (topic_id and not state.topic_id):
            state.topic_id = state.topic_id or topic_id
            self._changed.add(table.full_name)

    def begin(self, table: Table, *, lost_changes: bool = False) -> None:
        """Begins a snapshot. Its first range is read once the stream has passed all changes from before the current
        catalogue. A table that was dropped meanwhile is forgotten."""
        try:
            schema = self._tables.schema_of(table)
        except TableDroppedError as error:
            logger.info("%s", error)
            self.forget(table.full_name)
            return
        self._delivery.create_topics([schema.topic])
        before = self.states.get(table.full_name)
        was_whole = (
            not lost_changes
            and before is not None
            and not before.running
            and not self.reselect.of(table.full_name)
            and before.oid == table.oid
            and not before.may_lack_changes(table)
            and before.is_completed_by_names(table)
        )
        self.states[table.full_name] = TableState.beginning(
            table,
            begins_at=self._log_end(),
            since=self._ends(schema.topic),
            was_whole=was_whole,
            key_schema_id=schema.key_schema_id,
            topic_id=self._delivery.topic_id(schema.topic),
        )
        self.reselect.forget(table.full_name)  # the snapshot reads these rows, too
        self._changed.add(table.full_name)
        self._read_rows.begin(table.full_name)
        self._on_begin(schema.topic)

    def request(self, full_name: str) -> bool:
        """Reads the table again, as requested. Returns False if it is not captured.

        Any role of the database may request it, as often as it likes. So the snapshot under way comes to its end first,
        and one that has not begun to read serves all requests.
        """
        state = self.states.get(full_name)
        if state is None or not state.running or full_name not in self._tables.published:
            logger.info("table %r is to be read again, as requested", full_name)
            return self.restart(full_name, lost_changes=False)
        if not state.begins_at and not state.read_again:
            logger.info("table %s is read, and then again, as requested", full_name)
            state.read_again = True
            self._changed.add(full_name)
        return True

    def restart(self, full_name: str, *, lost_changes: bool) -> bool:
        """Returns False if the table is no longer captured."""
        table = self._tables.published.get(full_name)
        try:
            if table is not None:
                self.begin(table, lost_changes=lost_changes)
                return full_name in self.states
        except ConfigError as error:
            logger.info("%s", error)
        self.forget(full_name)
        return False

    def restart_replaced_table(self, relation: Relation) -> None:
        """Called when the stream brings changes of a table that was dropped or renamed since. They go into the topic of
        its former name, so the tables that have its name or its oid now are read again."""
        for name, table in list(self._tables.published.items()):
            if name == relation.full_name or table.oid == relation.oid:
                logger.info("table %s was another one for a while: it is read again", name)
                self.restart(name, lost_changes=True)

    def _log_end(self) -> int:
        # On a standby, the record that is being replayed begins there, so no commit is between.
        return self._database.replayed_position() if self._is_standby else self._database.insert_position()

    def _ends(self, topic: str) -> dict[str, int]:
        self._delivery.flush()
        found = ends(self._client, topic, self._delivery.partition_count(topic))
        return {str(partition): end for partition, end in found.items() if end}

    def _start_reading(self, name: str) -> None:
        """Called before the first range. Everything in the topic is older than the range, and all changes that follow
        are of this very table."""
        state = self.states[name]
        topic = self._topic(name)
        state.since, state.begins_at = self._ends(topic), 0
        state.was_whole = state.was_whole and not self.reselect.of(name)
        self.reselect.forget(name)  # the snapshot reads these rows, too
        self._changed.add(name)
        self._on_begin(topic)

    def forget_unpublished(self) -> None:
        """Forgets tables of which the stream brings no changes. A table that comes back is read again."""
        for name in (set(self.states) | set(self.reselect.tables)) - set(self._tables.published):
            logger.info("table %s is not published any more", name)
            self.forget(name)

    def forget(self, full_name: str) -> None:
        self._locked.pop(full_name, None)
        self.reselect.forget(full_name)
        if self.states.pop(full_name, None) is not None:
            self._changed.add(full_name)

    # -- `SnapshotProgress` ----------------------------------------------------------------------------------

    def trusted_from(self, table: str) -> Mapping[int, int]:
        """See `SnapshotProgress`. Older values may miss changes if the snapshot began because changes were lost."""
        state = self.states.get(table)
        if state is None or not state.running or state.was_whole:
            return {}
        if state.begins_at:
            return dict.fromkeys(range(self._delivery.partition_count(self._topic(table))), NEVER)
        return {int(partition): end for partition, end in state.since.items()}

    def is_behind(self, table: str) -> bool:
        state = self.states.get(table)
        return state is not None and state.begins_at > 0

    def will_read(
        self, schema: TableSchema, keys: Sequence[Sequence[str]], newer: Sequence[bool], window: Window | None
    ) -> list[bool]:
        name = schema.relation.full_name
        state, table = self.states.get(name), self._tables.published.get(name)
        columns = [schema.relation.columns[place].name for place in schema.relation.key]
        if state is None or not state.running or state.ranges_read or table is None:
            return [False] * len(keys)
        if sorted(columns) != sorted(table.key) or not table.key_is_unique:
            # The key was changed, so nothing can be compared. To read a row by its key is never wrong.
            return [False] * len(keys)
        names = [columns.index(column) for column in table.key]
        ordered = [tuple(key[place] for place in names) for key in keys]
        found = self._keys_after(table, state.after, ordered)
        if window is not None and window.state is state and window.read is not None:
            until = window.read.until
            behind = [False] * len(keys) if until is None else self._keys_after(table, until, ordered)
            found = [
                one if is_newer else old for one, old, is_newer in zip(behind, found, newer, strict=True)
            ]
        return found

    def _keys_after(
        self, table: Table, bound: Sequence[str] | None, keys: list[tuple[str, ...]]
    ) -> list[bool]:
        if bound is None:
            return [True] * len(keys)
        try:
            return keys_after(self._database, table, tuple(bound), keys)
        except UsageError as error:
            logger.info("%s: rows that were left out are read by their keys", error)
            return [False] * len(keys)

    def on_reselect_limit(self, table: str) -> None:
        """Reads the table again, which includes all rows to select again."""
        limit = self._options.owed_keys_max
        if self._options.snapshot == "never":
            raise DataLossError(
                f"updates left values of more than {limit:,} rows of {table} untouched (TOAST), and the topic has none "
                "of these rows to take them from. Choose: start with a higher --owed-keys-max, so that the rows are "
                "read by their keys; or start once with --snapshot new, which reads every table"
            )
        logger.warning(
            "more than %d rows of %s would have to be read by their keys (owed_keys_max): the table is read from the "
            "beginning",
            limit,
            table,
        )
        self.restart(table, lost_changes=False)

    # -- in the snapshot that a new slot exported ------------------------------------------------------------

    def read_exported(
        self, snapshot: str, lsn: int, *, commit: Callable[[], None], is_stopped: Callable[[], bool]
    ) -> None:
        """Reads all running tables, and calls `commit` after some ranges. Returns early when stopped, or when a table
        has changed since the slot was created: the rest is read while changes flow."""
        with Database(self._options.dsn) as splitter, splitter.snapshot(snapshot):
            waiting = 0
            readers = SnapshotReaders(
                self._options.dsn, snapshot, self._options.snapshot_readers, self._ranges
            )
            try:
                for name in self.running:
                    self._start_reading(name)
                    table = self._tables.published[name]
                    schema = self._tables.schema_of(table, is_final=True)
                    size, expected = chunk_size(splitter, table, self._options.chunk_rows)
                    self._read_rows.expect(name, expected)
                    for read, rows in readers.read(table, schema, ranges(splitter, table, None, size)):
                        self._emit(
                            name, schema, read, rows, np.arange(len(rows)), lsn=lsn, read_us=self._now_us()
                        )
                        waiting += len(rows)
                        self.conclude(lsn)
                        # The first range shows soon that the capture works. Later commits have more rows.
                        if waiting >= COMMIT_ROWS or read.after is None or read.is_last or is_stopped():
                            commit()
                            waiting = 0
                            engine.load(wait=True, timeout_s=0 if read.is_last else engine.LOAD_TIMEOUT_S)
                        if is_stopped():
                            return
            except UsageError as error:
                self._tables.look()
                is_another = self._tables.published.get(name) != table
                if not is_another and isinstance(error, UnsupportedValueError):  # perhaps of a composite type
                    is_another = self._tables.schema_of(table).relation != schema.relation
                if not is_another:
                    raise
                logger.info("%s. The rest is read while changes flow", error)
            finally:
                readers.close()

    # -- beside the stream -------------------------------------------------------------------------------------

    def track_open_transactions(self, changes: Changes) -> None:
        """Waits for the transactions that are open now, unless it is known which of them were handed on."""
        if changes.recent.is_incomplete and not self._is_standby:
            changes.recent.wait_for_all_before(self._database.new_transaction())

    def step(self, changes: Changes) -> bool:
        """Called between transactions. Reads rows to select again or the next range, unless a window is open. Returns
        whether to call again soon, because a transaction that was handed on is not visible yet."""
        if changes.window is not None:
            return False
        name = self._next(changes.position)
        if name is None:
            return bool(self._locked)
        if not self._is_visible(changes):
            return True
        state = self.states.get(name)
        if state is not None and state.begins_at:
            self._start_reading(name)
        try:
            try:
                changes.window = self._read_window(name)
                self._locked.pop(name, None)
            except UsageError as error:
                self._handle_unreadable(name, error)
        except LockNotAvailableError as error:
            self._pause(name, error)
        if changes.window is not None and changes.window.watermark:
            emit_mark(self._database, self._options.name, changes.window.watermark)
        return changes.window is None and not self.is_done

    def _next(self, position: int) -> str | None:
        """Returns the table to read from next, or None if none can be read now."""
        self._reselects_first = not self._reselects_first
        unread = [name for name in self.running if not self.states[name].ranges_read]
        names = (
            [*self.reselect.tables, *unread] if self._reselects_first else [*unread, *self.reselect.tables]
        )
        now_ms = self._clock.monotonic_ms()
        latest = 0
        for name in names:
            state = self.states.get(name)
            begins_at = 0 if state is None else state.begins_at
            if begins_at > position:
                latest = max(latest, begins_at)
            elif self._locked.get(name, (0, 0))[0] <= now_ms:
                return name
        if latest > self._heartbeat_lsn and not self._is_standby:
            # With it the stream comes to that place, though nobody changes anything.
            emit_heartbeat(self._database)
            self._heartbeat_lsn = latest
        return None

    def _pause(self, name: str, error: LockNotAvailableError) -> None:
        """Tries the table again later. The stream continues meanwhile."""
        pause_ms = min(2 * self._locked.get(name, (0, FIRST_PAUSE_MS // 2))[1], LONGEST_PAUSE_MS)
        self._locked[name] = (self._clock.monotonic_ms() + pause_ms, pause_ms)
        logger.warning("%s. It is tried again: %s", error, self._database.lock_holders())

    def _handle_unreadable(self, name: str, error: UsageError) -> None:
        self._tables.look()
        table = self._tables.published.get(name)
        if table is None:
            logger.info("%s is not captured any more: %s", name, error)
            self.forget(name)
            return
        state = self.states.get(name)
        keys = [in_order(table, texts) for texts in self.reselect.of(name).values()]
        if state is not None and state.after is not None:
            keys.append(tuple(state.after))
        key = invalid_key(self._database, table, keys)
        if key is None:
            raise error
        said = f"({', '.join(key)}) is no longer a valid key of {name} ({error})"
        if self._options.snapshot == "never":
            raise DataLossError(
                f"{said}. Its row had to be read by it, for the topic lacks it. Choose: start once with --snapshot "
                "new, which reads every table; or give the value its old name back and start again"
            ) from error
        logger.warning("%s: the table is read from the beginning", said)
        self.restart(name, lost_changes=False)

    def _is_visible(self, changes: Changes) -> bool:
        """Whether a snapshot that is taken now sees everything that this session and earlier ones handed on."""
        self.track_open_transactions(changes)
        # A standby decodes only what it has replayed.
        return self._is_standby or self.wait.is_over(changes.recent)

    def _read_window(self, name: str) -> Window | None:
        """Returns None if there is nothing to read, or if the table has changed and begins again."""
        namespace, short = self._names(name)
        with Database(self._options.dsn, lock_timeout_ms=LOCK_TIMEOUT_MS) as database:
            with database.snapshot():
                # Locked before the catalogue is read: the columns stay as they are until the rows are read.
                database.rows(
                    f"lock table {quoted(namespace, short)} in access share mode", what=f"read {name}"
                )
                replayed = self._database.replayed_position() if self._is_standby else None
                visible = Visibility.parse(database.visible(), replayed=replayed)
                lsn = database.insert_position()
                table = self._tables.refresh_table(namespace, short, database)
                schema = self._tables.schema_of(table, database)
                state = self.states.get(name)
                if state is not None and (state.running or self._options.snapshot != "never"):
                    # `after` may have lost its meaning: by other names, collations or another order of the key.
                    self.consider(table, schema)
                    if self.states.get(name) is not state:
                        return None
                found = self._read_next(database, table, schema, state)
                if found is None:
                    return None
                data, read, reselect = found
                rows = schema.encoder.encode_copy(data)
            end = database.received_position() if self._is_standby else 0
        return Window(
            table=name,
            state=state,
            schema=schema,
            rows=rows,
            read=read,
            reselect=reselect,
            snapshot=visible,
            lsn=lsn,
            read_us=self._now_us(),
            watermark="" if self._is_standby else secrets.token_hex(16),  # nobody else can know it
            end=end,
        )

    def _read_next(
        self, database: Database, table: Table, schema: TableSchema, state: TableState | None
    ) -> tuple[bytes, Range | None, set[bytes]] | None:
        """Rows in COPY's format: the next range, or rows by their keys, in turn. None: the table has neither."""
        owed = list(self.reselect.of(table.full_name).items())[: self._options.chunk_rows]
        is_unread = state is not None and state.running and not state.ranges_read
        if owed and (self._reselects_first or not is_unread):
            keys = [in_order(table, texts) for _, texts in owed]
            data, count = read_keys(database, table, schema.selected, keys)
            return data, None, {key for key, _ in owed[:count]}
        if state is None or not is_unread:
            return None
        if not table.key_is_unique:
            check_small_enough(database, table, 4 * self._options.memory_bytes)
        size, expected = chunk_size(database, table, self._options.chunk_rows)
        self._read_rows.expect(table.full_name, expected)
        after = None if state.after is None else tuple(state.after)
        wanted = first_rows(database, table, Range(after=after), size) if table.key_is_unique else Range()
        data, read = self._ranges.read(database, table, schema.selected, wanted)
        return data, read, set()

    def passed(self, changes: Changes) -> None:
        """Called when the stream has passed the window's place: the remaining rows are written."""
        window, changes.window = changes.window, None
        assert window is not None
        if self.states.get(window.table) is not window.state:
            return  # the table began again, or was forgotten
        window.rows = window.rows.with_schema(self._tables.register_value(window.schema))
        written = window.remaining()
        self._emit(
            window.table,
            window.schema,
            window.read,
            window.rows,
            written,
            lsn=window.lsn,
            read_us=window.read_us,
        )
        changes.note_snapshot_rows(window.schema.topic, window.rows, written)
        missing = [
            key for key in window.reselect if key in self.reselect.of(window.table) and key not in window
        ]
        self.reselect.remove(window.table, window.reselect)
        if missing:
            self._handle_missing_rows(window, missing)

    def _handle_missing_rows(self, window: Window, keys: list[bytes]) -> None:
        """Called for keys to select again that the table does not have, although the stream brought no deletion. The
        stream does not tell of everything, such as a partition that was truncated or detached."""
        said = f"{len(keys):,} rows of {window.table} that had to be read by their keys are gone, and no change told it"
        if self._options.snapshot != "never":
            logger.warning("%s: the table is read from the beginning", said)
            self.restart(window.table, lost_changes=True)
            return
        logger.warning("%s: their keys get null values", said)
        self._tombstones.write(window.schema.topic, keys, lsn=window.lsn)

    def conclude(self, lsn: int) -> None:
        """Completes the tables of which every row is in the topic. `lsn`: the position."""
        for name in self.running:
            state = self.states[name]
            if not state.ranges_read or self.reselect.of(name):
                continue
            topic = self._topic(name)
            # Keys older than `since` get tombstones. In a topic that was created again, these would be the rows read.
            if not state.is_of_topic(self._delivery.topic_id_now(topic)):
                logger.warning("topic %s was deleted meanwhile: table %s is read again", topic, name)
                self.restart(name, lost_changes=True)
                continue
            if state.since:
                self._tombstones.write_unseen_keys(topic, state.since, lsn=lsn)
            state.running, state.after, state.since = False, None, {}
            state.ranges_read = state.was_whole = False
            self._changed.add(name)
            logger.info("table %s is read", name)
            if state.read_again:
                self.restart(name, lost_changes=False)

    # -- rows into the topic -------------------------------------------------------------------------------------

    def _emit(
        self,
        name: str,
        schema: TableSchema,
        read: Range | None,
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
            self._delivery.create_topics([schema.topic])
            self._delivery.add(
                schema.topic,
                keys=keys,
                values=values,
                timestamps=np.full(count, read_us // 1000, np.int64),
                headers=snapshot_headers(count, lsn=lsn, read_us=read_us),
            )
        self.rows += count
        if read is None:
            return
        self._read_rows.add(name, len(rows))
        state = self.states[name]
        state.after = list(read.until) if read.until is not None else state.after
        state.ranges_read = read.is_last
        self._changed.add(name)

    def _topic(self, name: str) -> str:
        return self._options.topic(*self._names(name))

    def _names(self, name: str) -> tuple[str, str]:
        """Returns the names of the schema and of the table; either may have a dot."""
        table = self._tables.published.get(name)
        if table is not None:
            return table.schema, table.name
        schema, _, short = name.partition(".")
        return schema, short

    def _now_us(self) -> int:
        return self._clock.wall_ms() * 1000
