"""The snapshots of a session: which tables are read, and how far. They copy whole tables into their topics, so that
later changes apply to complete data.

There are two ways to read, with the same state. A new slot exports a snapshot of the LSN at which its changes start:
all ranges are read in it, in parallel, and the stream starts afterwards (`exported`). If that snapshot is not available
(after a kill, with an existing slot, for a table that was added or requested later), ranges are read one by one while
changes flow, and merged by `Window` (`windows`). The position records the progress of each table, so both ways resume
where they were.

A table is complete when its topic has every row, and no live key that the table does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from suiro.clock import SystemClock
from suiro.connect.positions import known_fields
from suiro.connect.postgres.encoding.encoded_rows import EncodedRows
from suiro.connect.postgres.encoding.pgoutput import Int64s
from suiro.connect.postgres.encoding.records import snapshot_headers
from suiro.connect.postgres.encoding.schemas import Relation
from suiro.connect.postgres.progress import ReadRows
from suiro.connect.postgres.resources import Resources
from suiro.connect.postgres.server.database import LockNotAvailableError
from suiro.connect.postgres.server.publication import Table, TableDroppedError
from suiro.connect.postgres.snapshot.ranges import Range, check_small_enough, keys_after
from suiro.connect.postgres.snapshot.reselect import ReselectKeys
from suiro.connect.postgres.snapshot.table_state import TableState
from suiro.connect.postgres.snapshot.topic_state import NEVER, KeyedValues, ends, load
from suiro.connect.postgres.snapshot.window import Window
from suiro.connect.postgres.tables import TableSchema
from suiro.errors import ConfigError, DataLossError, UsageError

logger = logging.getLogger(__name__)

PART = "table/"


class Snapshots:
    """`states` has every captured table. `on_begin` is called with the topic when a snapshot begins."""

    def __init__(self, resources: Resources, *, parts: Mapping[str, Any], on_begin: Callable[[str], None]) -> None:
        self._options = resources.options
        self._database = resources.database
        self._is_standby = resources.is_standby
        self._tables = resources.tables
        self._delivery = resources.delivery
        self._client = resources.client
        self._on_begin = on_begin
        self._values_file = resources.values
        self.locked: dict[str, tuple[int, int]] = {}  # by table: when to try again, and the last pause
        self.states = {
            name.removeprefix(PART): TableState(**known_fields(TableState, value))
            for name, value in parts.items()
            if name.startswith(PART)
        }
        self.reselect = ReselectKeys(parts, limit=self._options.owed_keys_max)
        self._changed: set[str] = set()  # tables whose state goes into the next position
        # Tables that are read once more only because it was requested, the first request first.
        self._repeated: dict[str, None] = {}
        self.read_rows = ReadRows(self.states)
        self.rows = 0

    @property
    def is_done(self) -> bool:
        return not self.reselect.tables and not any(state.running for state in self.states.values())

    @property
    def is_ready(self) -> bool:
        """Whether every table was read. Requests, which any role can write without end, do not count."""
        return not self.reselect.tables and self._repeated.keys() >= set(self.running)

    @property
    def running(self) -> list[str]:
        """Returns the tables that are being read. Those that are only read once more come last, in the order of their
        requests: a table that is requested without end would delay the others."""
        found = [name for name, state in self.states.items() if state.running]
        places = {name: place for place, name in enumerate(self._repeated, 1)}
        return sorted(found, key=lambda name: places.get(name, 0))

    def progress(self) -> list[dict[str, Any]]:
        """By table. Called by any thread."""
        return self.read_rows.progress(self.states, self.locked, self.topic_of)

    def drain_changed(self) -> dict[str, Any]:
        """Returns the changed parts of the position, and resets the changes."""
        found = {PART + name: asdict(self.states[name]) if name in self.states else None for name in self._changed}
        self._changed.clear()
        return found | self.reselect.drain_changed()

    @property
    def has_changed(self) -> bool:
        return bool(self._changed) or self.reselect.has_changed

    def resume(self, table: Table) -> None:
        """Called for each table when a session starts. A table that was dropped meanwhile is forgotten."""
        schema = self._schema_of(table)
        if schema is not None:
            self.consider(table, schema)

    def _schema_of(self, table: Table) -> TableSchema | None:
        """None if the table was dropped meanwhile. It is forgotten then."""
        try:
            return self._tables.schema_of(table)
        except TableDroppedError as error:
            logger.info("%s", error)
            self.forget(table.full_name)
            return None

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
        schema = self._schema_of(table)
        if schema is None:
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
        self._repeated.pop(table.full_name, None)
        self.read_rows.begin(table.full_name)
        self._on_begin(schema.topic)

    def request(self, full_name: str) -> str | None:
        """Reads the table again, as requested. Returns why not, if it is refused.

        Any role of the database may request it, as often as it likes. So the snapshot under way comes to its end first,
        and one that has not begun to read serves all requests. One that cannot be read would end the capture, at each
        start again.
        """
        table = self._tables.published.get(full_name)
        try:
            if table is not None:
                check_small_enough(self._database, table, self._options.memory_bytes)
        except (ConfigError, LockNotAvailableError) as error:
            return str(error)
        state = self.states.get(full_name)
        if state is None or not state.running or full_name not in self._tables.published:
            logger.info("table %r is to be read again, as requested", full_name)
            was_read = state is not None and not state.running
            is_captured = self._repeat(full_name) if was_read else self.restart(full_name, lost_changes=False)
            return None if is_captured else "it is not captured"
        if not state.begins_at and not state.read_again:
            logger.info("table %s is read, and then again, as requested", full_name)
            state.read_again = True
            self._changed.add(full_name)
        return None

    def _repeat(self, full_name: str) -> bool:
        is_captured = self.restart(full_name, lost_changes=False)
        self._repeated[full_name] = None
        return is_captured

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
        """Called when the stream brings changes of a table that was dropped or renamed since, or rows without the key
        that it has now. The changes go into the topic of its former name, and such rows nowhere, so the tables that
        have its name or its oid now are read again."""
        for name, table in list(self._tables.published.items()):
            if name == relation.full_name or table.oid == relation.oid:
                logger.info("table %s was another one for a while: it is read again", name)
                self.restart(name, lost_changes=True)

    def restart_incomplete_table(self, oid: int) -> None:
        """Called when the stream brings changes of a table under a name that is not captured, or from when it had no
        key. They are not written, so its topic lacks them when it has its captured name, or a key, again."""
        for name, state in list(self.states.items()):
            if state.oid == oid and self._options.snapshot != "never":
                logger.info("table %s had another name, or no key, for a while: it is read again", name)
                self.restart(name, lost_changes=True)

    def _log_end(self) -> int:
        # On a standby, the record that is being replayed begins there, so no commit is between.
        return self._database.replayed_position() if self._is_standby else self._database.insert_position()

    def _ends(self, topic: str) -> dict[str, int]:
        self._delivery.flush()
        found = ends(self._client, topic, self._delivery.partition_count(topic))
        return {str(partition): end for partition, end in found.items() if end}

    def start_reading(self, name: str) -> None:
        """Called before the first range. Everything in the topic is older than the range, and all changes that follow
        are of this very table."""
        state = self.states[name]
        topic = self.topic_of(name)
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
        self.locked.pop(full_name, None)
        self.reselect.forget(full_name)
        if self.states.pop(full_name, None) is not None:
            self._changed.add(full_name)

    def trusted_from(self, table: str) -> Mapping[int, int]:
        """Returns the offsets in its topic from which values are those of the table, by partition. Older values may
        miss changes if the snapshot began because changes were lost."""
        state = self.states.get(table)
        if state is None or not state.running or state.was_whole:
            return {}
        if state.begins_at:
            return dict.fromkeys(range(self._delivery.partition_count(self.topic_of(table))), NEVER)
        return {int(partition): end for partition, end in state.since.items()}

    def is_behind(self, table: str) -> bool:
        """Whether the stream may still bring changes from before the schema that the catalogue has."""
        state = self.states.get(table)
        return state is not None and state.begins_at > 0

    def will_read(
        self, schema: TableSchema, keys: Sequence[Sequence[str]], newer: Sequence[bool], window: Window | None
    ) -> list[bool]:
        """Returns for each key whether a later range reads its row. `newer`: whether the window's rows lack, or may
        lack, a change of it."""
        name = schema.relation.full_name
        state, table = self.states.get(name), self._tables.published.get(name)
        columns = [schema.relation.columns[place].name for place in schema.relation.key]
        if state is None or not state.running or state.ranges_read or table is None:
            return [False] * len(keys)
        if sorted(columns) != sorted(table.key) or not table.is_divisible:
            # Nothing can be compared, for example because the key was changed. To read a row by its key is never wrong.
            return [False] * len(keys)
        names = [columns.index(column) for column in table.key]
        ordered = [tuple(key[place] for place in names) for key in keys]
        found = self._keys_after(table, state.after, ordered)
        if window is not None and window.state is state and window.read is not None:
            until = window.read.until
            behind = [False] * len(keys) if until is None else self._keys_after(table, until, ordered)
            found = [one if is_newer else old for one, old, is_newer in zip(behind, found, newer, strict=True)]
        return found

    def _keys_after(self, table: Table, bound: Sequence[str] | None, keys: list[tuple[str, ...]]) -> list[bool]:
        if bound is None:
            return [True] * len(keys)
        try:
            return keys_after(self._database, table, tuple(bound), keys)
        except UsageError as error:
            logger.info("%s: rows that were left out are read by their keys", error)
            return [False] * len(keys)

    def on_reselect_limit(self, table: str) -> None:
        """Called when there are more keys to select again than the limit. Reads the table again, which includes all of
        these rows."""
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

    def conclude(self, lsn: int) -> None:
        """Completes the tables of which every row is in the topic. `lsn`: the position."""
        for name in self.running:
            state = self.states[name]
            if not state.ranges_read or self.reselect.of(name):
                continue
            topic = self.topic_of(name)
            # Keys older than `since` get tombstones. In a topic that was created again, these would be the rows read.
            if not state.is_of_topic(self._delivery.topic_id_now(topic)):
                logger.warning("topic %s was deleted meanwhile: table %s is read again", topic, name)
                self.restart(name, lost_changes=True)
                continue
            if state.since:
                self._write_unseen_keys(topic, state.since, lsn=lsn)
            state.running, state.after, state.since = False, None, {}
            state.ranges_read = state.was_whole = False
            self._changed.add(name)
            logger.info("table %s is read", name)
            if state.read_again:
                self._repeat(name)

    def emit(
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
        self.read_rows.add(name, len(rows))
        state = self.states[name]
        state.after = list(read.until) if read.until is not None else state.after
        state.ranges_read = read.is_last
        self._changed.add(name)

    def _write_unseen_keys(self, topic: str, since: Mapping[str, int], *, lsn: int) -> None:
        """Writes tombstones for keys that have a value and were last written before the snapshot began: the snapshot
        has written all rows of the table since."""
        self._delivery.flush()
        keys = KeyedValues(self._values_file)
        try:
            offsets = {int(partition): end for partition, end in since.items()}
            load(keys, self._client, topic, self._delivery.partition_count(topic), since=offsets, only_older=True)
            gone = 0
            for portion in keys.portions():
                gone += len(portion)
                self.write_tombstones(topic, portion, lsn=lsn)
            logger.info("topic %s: %d keys are gone from the table", topic, gone)
        finally:
            keys.close()

    def write_tombstones(self, topic: str, keys: list[bytes], *, lsn: int) -> None:
        """For keys that the table no longer has, and that no change in the stream deleted."""
        read_ms = SystemClock().wall_ms()
        headers = snapshot_headers(len(keys), lsn=lsn, read_us=read_ms * 1000, operation="gone")
        self._delivery.add_tombstones(topic, keys, timestamp_ms=read_ms, headers=headers)

    def topic_of(self, name: str) -> str:
        return self._options.topic(*self.names_of(name))

    def names_of(self, name: str) -> tuple[str, str]:
        """Returns the names of the schema and of the table; either may have a dot."""
        table = self._tables.published.get(name)
        if table is not None:
            return table.schema, table.name
        schema, _, short = name.partition(".")
        return schema, short
