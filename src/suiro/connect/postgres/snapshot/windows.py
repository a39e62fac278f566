"""Reads rows while changes flow: ranges of tables, and rows to select again, in turn. A window holds them until the
stream has passed the place where they were read."""

from __future__ import annotations

import logging
import secrets

from suiro.clock import SystemClock
from suiro.connect.postgres.changes import Changes
from suiro.connect.postgres.encoding.encoded_rows import UnsupportedValueError
from suiro.connect.postgres.encoding.names import quoted
from suiro.connect.postgres.log_messages import emit_heartbeat, emit_mark
from suiro.connect.postgres.resources import Resources
from suiro.connect.postgres.server.database import LOCK_TIMEOUT_MS, Database, LockNotAvailableError
from suiro.connect.postgres.server.publication import Table
from suiro.connect.postgres.snapshot.ranges import (
    Range,
    RangeReader,
    check_small_enough,
    chunk_size,
    first_rows,
    in_order,
    invalid_key,
    read_keys,
)
from suiro.connect.postgres.snapshot.snapshots import Snapshots
from suiro.connect.postgres.snapshot.table_state import TableState
from suiro.connect.postgres.snapshot.visibility import Visibility, VisibilityWait
from suiro.connect.postgres.snapshot.window import Window
from suiro.connect.postgres.tables import TableSchema
from suiro.errors import DataLossError, UsageError

logger = logging.getLogger(__name__)

FIRST_PAUSE_MS = 100  # before a table that is locked is tried again; then twice as long each time
LONGEST_PAUSE_MS = 10_000


class Windows:
    """Opens one window at a time, in `Changes.window`."""

    def __init__(self, resources: Resources, snapshots: Snapshots) -> None:
        self._options = resources.options
        self._database = resources.database
        self._is_standby = resources.is_standby
        self._tables = resources.tables
        self._snapshots = snapshots
        self._clock = SystemClock()
        self._ranges = RangeReader()
        self._heartbeat_lsn = 0  # a heartbeat was written after this place
        self._reselects_first = True  # in turn with ranges, so that neither delays the other
        self.wait = VisibilityWait(resources.database)

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
            return bool(self._snapshots.locked)
        if not self._is_visible(changes):
            return True
        state = self._snapshots.states.get(name)
        if state is not None and state.begins_at:
            self._snapshots.start_reading(name)
        try:
            try:
                changes.window = self._read_window(name)
                self._snapshots.locked.pop(name, None)
            except UsageError as error:
                self._handle_unreadable(name, error)
        except LockNotAvailableError as error:
            self._pause(name, error)
        if changes.window is not None and changes.window.watermark:
            emit_mark(self._database, self._options.name, changes.window.watermark)
        return changes.window is None and not self._snapshots.is_done

    def _next(self, position: int) -> str | None:
        """Returns the table to read from next, or None if none can be read now."""
        self._reselects_first = not self._reselects_first
        unread = [name for name in self._snapshots.running if not self._snapshots.states[name].ranges_read]
        names = (
            [*self._snapshots.reselect.tables, *unread]
            if self._reselects_first
            else [*unread, *self._snapshots.reselect.tables]
        )
        now_ms = self._clock.monotonic_ms()
        latest = 0
        for name in names:
            state = self._snapshots.states.get(name)
            begins_at = 0 if state is None else state.begins_at
            if begins_at > position:
                latest = max(latest, begins_at)
            elif self._snapshots.locked.get(name, (0, 0))[0] <= now_ms:
                return name
        if latest > self._heartbeat_lsn and not self._is_standby:
            # With it the stream comes to that place, though nobody changes anything.
            emit_heartbeat(self._database)
            self._heartbeat_lsn = latest
        return None

    def _pause(self, name: str, error: LockNotAvailableError) -> None:
        """Tries the table again later. The stream continues meanwhile."""
        pause_ms = min(2 * self._snapshots.locked.get(name, (0, FIRST_PAUSE_MS // 2))[1], LONGEST_PAUSE_MS)
        self._snapshots.locked[name] = (self._clock.monotonic_ms() + pause_ms, pause_ms)
        logger.warning("%s. It is tried again: %s", error, self._database.lock_holders())

    def _handle_unreadable(self, name: str, error: UsageError) -> None:
        self._tables.look()
        table = self._tables.published.get(name)
        if table is None:
            logger.info("%s is not captured any more: %s", name, error)
            self._snapshots.forget(name)
            return
        state = self._snapshots.states.get(name)
        keys = []
        if table.has_key_literals:
            keys = [in_order(table, texts) for texts in self._snapshots.reselect.of(name).values()]
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
        self._snapshots.restart(name, lost_changes=False)

    def _is_visible(self, changes: Changes) -> bool:
        """Whether a snapshot that is taken now sees everything that this session and earlier ones handed on."""
        self.track_open_transactions(changes)
        # A standby decodes only what it has replayed.
        return self._is_standby or self.wait.is_over(changes.recent)

    def _read_window(self, name: str) -> Window | None:
        """Returns None if there is nothing to read, or if the table has changed and begins again."""
        namespace, short = self._snapshots.names_of(name)
        with Database(self._options.dsn, lock_timeout_ms=LOCK_TIMEOUT_MS) as database:
            with database.snapshot():
                # Locked before the catalogue is read: the columns stay as they are until the rows are read.
                database.rows(f"lock table {quoted(namespace, short)} in access share mode", what=f"read {name}")
                replayed = self._database.replayed_position() if self._is_standby else None
                visible = Visibility.parse(database.visible(), replayed=replayed)
                lsn = database.insert_position()
                table = self._tables.refresh_table(namespace, short, database)
                schema = self._tables.schema_of(table, database)
                state = self._snapshots.states.get(name)
                if state is not None and (state.running or self._options.snapshot != "never"):
                    # `after` may have lost its meaning: by other names, collations or another order of the key.
                    self._snapshots.consider(table, schema)
                    if self._snapshots.states.get(name) is not state:
                        return None
                found = self._read_next(database, table, schema, state)
                if found is None:
                    return None
                data, read, reselect = found
                try:
                    rows = schema.encoder.encode_copy(data)
                except UnsupportedValueError as error:
                    if self._tables.is_outdated(table, schema, error):
                        return None
                    raise
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
            read_us=self._clock.wall_ms() * 1000,
            watermark="" if self._is_standby else secrets.token_hex(16),  # nobody else can know it
            end=end,
        )

    def _read_next(
        self, database: Database, table: Table, schema: TableSchema, state: TableState | None
    ) -> tuple[bytes, Range | None, set[bytes]] | None:
        """Rows in COPY's format: the next range, or rows by their keys, in turn. None: the table has neither."""
        owed = list(self._snapshots.reselect.of(table.full_name).items())[: self._options.chunk_rows]
        is_unread = state is not None and state.running and not state.ranges_read
        if owed and (self._reselects_first or not is_unread):
            keys = [in_order(table, texts) for _, texts in owed]
            data, count = read_keys(database, table, schema.selected, keys)
            return data, None, {key for key, _ in owed[:count]}
        if state is None or not is_unread:
            return None
        check_small_enough(database, table, self._options.memory_bytes)
        size, expected = chunk_size(database, table, self._options.chunk_rows)
        self._snapshots.read_rows.expect(table.full_name, expected)
        after = None if state.after is None else tuple(state.after)
        wanted = first_rows(database, table, Range(after=after), size) if table.is_divisible else Range()
        data, read = self._ranges.read(database, table, schema.selected, wanted)
        return data, read, set()

    def passed(self, changes: Changes) -> None:
        """Called when the stream has passed the window's place: the remaining rows are written."""
        window, changes.window = changes.window, None
        assert window is not None
        if self._snapshots.states.get(window.table) is not window.state:
            return  # the table began again, or was forgotten
        window.rows = window.rows.with_schema(self._tables.register_value(window.schema))
        written = window.remaining()
        self._snapshots.emit(
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
            key for key in window.reselect if key in self._snapshots.reselect.of(window.table) and key not in window
        ]
        self._snapshots.reselect.remove(window.table, window.reselect)
        if missing:
            self._handle_missing_rows(window, missing)

    def _handle_missing_rows(self, window: Window, keys: list[bytes]) -> None:
        """Called for keys to select again that the table does not have, although the stream brought no deletion. The
        stream does not tell of everything, such as a partition that was truncated or detached."""
        said = f"{len(keys):,} rows of {window.table} that had to be read by their keys are gone, and no change told it"
        if self._options.snapshot != "never":
            logger.warning("%s: the table is read from the beginning", said)
            self._snapshots.restart(window.table, lost_changes=True)
            return
        logger.warning("%s: their keys get null values", said)
        self._snapshots.write_tombstones(window.schema.topic, keys, lsn=window.lsn)
