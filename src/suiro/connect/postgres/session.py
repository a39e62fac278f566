"""One session of a capture: from a position until it is stopped or loses a connection."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from suiro.clock import SystemClock
from suiro.connect.postgres.changes import Changes
from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.pgoutput import Block
from suiro.connect.postgres.log_messages import emit_heartbeat
from suiro.connect.postgres.resources import Resources
from suiro.connect.postgres.server.database import Database, LockNotAvailableError, lsn_text
from suiro.connect.postgres.server.slot import LOST, SlotState, advance_slot, read_slot, release_slot
from suiro.connect.postgres.server.slot_peek import peek_changes
from suiro.connect.postgres.server.stream import ReplicationStream
from suiro.connect.postgres.snapshot.exported import read_exported
from suiro.connect.postgres.snapshot.snapshots import Snapshots
from suiro.connect.postgres.snapshot.windows import Windows
from suiro.connect.postgres.tables import TableSchema
from suiro.errors import ConfigError, DataLossError

logger = logging.getLogger(__name__)

QUIET_COMMIT_MS = 1_000  # between positions without records
BACKLOG_COMMIT_MS = 100
WAIT_S = 0.5
FIRST_RETRY_S = 0.01  # before the first look whether a transaction is visible; then twice as long each time
LAG_INTERVAL_MS = 1_000


class Stopped(Exception):
    """A stop was requested; not an error."""


class Session:
    """Created when the position is known. Must be closed.

    `source`: the facts of the database that go into each position. `parts`: those of the last position.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        source: dict[str, str | int],
        position: int,
        parts: dict[str, Any],
    ) -> None:
        self._options = resources.options
        self._database = resources.database
        self._is_standby = resources.is_standby
        self._tables = resources.tables
        self._delivery = resources.delivery
        self._resources = resources
        self._status = resources.status
        self._source = source
        self._clock = SystemClock()
        # Other threads read its `progress`.
        self.snapshots = Snapshots(resources, parts=parts, on_begin=lambda topic: self._changes.restart(topic))
        self._windows = Windows(resources, self.snapshots)
        self._changes = Changes(resources, self.snapshots, position=position, on_new_schema=self._new_schema)
        self._stream: ReplicationStream | None = None
        self.committed = 0  # the position of the last commit
        self._committed_records = 0
        self._committed_ms = 0
        self._checked_ms = 0
        self._lag_checked_ms = 0
        self._log_end = 0  # the end of Postgres's log when the lag was last checked
        self._deferred: dict[str, TableSchema] = {}  # by topic: the table was locked when it was announced

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    @property
    def position_text(self) -> str:
        return lsn_text(self._changes.position)

    @property
    def topics(self) -> list[str]:
        return [self._options.topic(table.schema, table.name) for table in self._tables.published.values()]

    def begin_snapshots(self, snapshot: str) -> None:
        """`snapshot`: "initial", "new" or "never" for a start without a position, or as if there was none; "resume" for
        a start with one."""
        self._delivery.create_topics(self.topics)
        self.snapshots.forget_unpublished()
        for table in self._tables.published.values():
            if snapshot in ("new", "initial"):
                self.snapshots.begin(table, lost_changes=True)
            elif self._options.snapshot != "never":
                self.snapshots.resume(table)
        self.commit()

    def read_exported(self, snapshot: str) -> None:
        read_exported(
            self.snapshots,
            self._resources,
            snapshot,
            self._changes.position,
            commit=lambda: self.commit(wait=False),
        )
        self._delivery.wait_for_send()
        self._check_stopped()

    def stream(self, on_ready: Callable[[Session], None]) -> None:
        """Processes changes until it raises `Stopped` or an error."""
        self._windows.track_open_transactions(self._changes)
        self._catch_up()
        engine.load()
        stream = self._open_stream()
        pause_s = FIRST_RETRY_S
        while True:
            if self._is_far_behind(stream):
                stream.close()
                self._catch_up()
                stream = self._open_stream()
            retries_soon = False
            block = stream.read_block()
            if block is not None:
                self._process(block, stream)
            if not self._changes.open:
                self._between_transactions(stream)
                self._check_stopped()
                retries_soon = self._windows.step(self._changes)
                self._status.visibility_wait_seconds = self._windows.wait.seconds
                pause_s = min(2 * pause_s, WAIT_S) if retries_soon else FIRST_RETRY_S
                if self.snapshots.is_ready:
                    on_ready(self)
            else:
                self._check_stopped()
            self._check_periodically(stream)
            if block is None:
                stream.send_status()
                stream.wait(pause_s if retries_soon else WAIT_S, self._resources.wakeup)

    def _open_stream(self) -> ReplicationStream:
        self._changes.reset()
        self._stream = ReplicationStream(
            self._options.dsn,
            slot=self._options.slot,
            publication=self._options.publication,
            start_lsn=self._changes.position,
        )
        return self._stream

    def _is_far_behind(self, stream: ReplicationStream) -> bool:
        """Whether the backlog is large enough to read it by SQL. Checked once a second.

        The stream may be far beyond the position if other databases or tables fill the log, or a transaction is open.
        It is compared with the end of the log at the previous check: what was written since may still be in the socket
        or in the decoder.
        """
        now_ms = self._clock.monotonic_ms()
        if self._is_standby or self._changes.open or now_ms - self._lag_checked_ms < LAG_INTERVAL_MS:
            return False
        self._lag_checked_ms = now_ms
        end, self._log_end = self._log_end, self._database.wal_position()
        at = max(self._changes.position, stream.wal_end)
        if end - at <= self._options.catch_up_bytes:
            return False
        slot = read_slot(self._database, self._options.slot)
        at = max(at, 0 if slot is None else slot.sent_lsn)
        return end - at > max(self._options.catch_up_bytes, _decoded_again(slot, at))

    def _catch_up(self) -> None:
        """Reads the backlog by SQL until less than `catch_up_bytes` is left."""
        options, changes = self._options, self._changes
        again = 0
        while True:
            behind = self._database.wal_position() - changes.position
            if behind <= max(options.catch_up_bytes, again):
                return
            if not self._is_standby:
                emit_heartbeat(self._database)  # a transaction at the end, to which the position moves
            end = self._database.wal_position()
            release_slot(self._database, options.slot, check=self._check_stopped)
            changes.reset()
            with Database(options.dsn) as database:
                count = peek_changes(
                    database,
                    slot=options.slot,
                    publication=options.publication,
                    upto=end,
                    on_block=lambda block: self._process(block, None),
                    check=self._check_stopped,
                )
            if not count:
                return  # on a standby, without a heartbeat: the protocol tells how far it is
            self.commit()
            advance_slot(self._database, options.slot, changes.position)
            again = _decoded_again(read_slot(self._database, options.slot), changes.position)
            logger.info("caught up to %s by SQL: %d messages", self.position_text, count)

    def _process(self, block: Block, stream: ReplicationStream | None) -> None:
        self._changes.process(block)
        if not self._changes.open:
            self._between_transactions(stream)
        self._check_stopped()  # an incomplete transaction is aborted then

    def _check_stopped(self) -> None:
        if self._resources.stopped.is_set():
            raise Stopped

    def _between_transactions(self, stream: ReplicationStream | None) -> None:
        """Called between two transactions of Postgres: handles requests, then commits to Kafka if it is time to."""
        changes = self._changes
        window = changes.window
        if window is not None and window.watermark and window.watermark == changes.passed_mark:
            self._windows.passed(changes)
        self._handle_requests()
        now_ms = self._clock.monotonic_ms()
        if self._is_standby and stream is not None and stream.is_idle and stream.wal_end > changes.position:
            changes.position = stream.wal_end  # a standby has no heartbeats
        window = changes.window
        if window is not None and not window.watermark and changes.position >= window.end:
            self._windows.passed(changes)
        self.snapshots.conclude(changes.position)
        has_records = self._delivery.records != self._committed_records
        is_quiet_due = changes.position != self.committed and now_ms - self._committed_ms >= QUIET_COMMIT_MS
        if not (has_records or self.snapshots.has_changed or is_quiet_due):
            return
        if stream is not None:
            self.commit()
            stream.confirm(changes.position)
        elif now_ms - self._committed_ms >= BACKLOG_COMMIT_MS:
            self.commit(wait=False)  # the slot is advanced when the whole backlog was read

    def _handle_requests(self) -> None:
        requests, self._changes.requests = self._changes.requests, {}
        for name in requests:
            self._check_stopped()
            refusal = self.snapshots.request(name)
            if refusal is not None:
                logger.error("the requested snapshot of %r is refused: %s", name, refusal)
                self._resources.on_event({"event": "snapshot_refused", "table": name, "reason": refusal})

    def commit(self, *, wait: bool = True) -> None:
        """Commits the written records and the position in one transaction."""
        self._delivery.commit(
            self._source | {"lsn": lsn_text(self._changes.position)},
            self.snapshots.drain_changed(),
            wait=wait,
        )
        self.committed = self._changes.position
        self._committed_records = self._delivery.records
        self._committed_ms = self._clock.monotonic_ms()
        status = self._status
        status.kafka_transactions += 1
        status.records = self._delivery.records
        status.snapshot_rows = self.snapshots.rows
        status.transactions = self._changes.transactions
        status.tables_running = len(self.snapshots.running)
        status.owed_keys = len(self.snapshots.reselect)
        status.last_commit_seconds = self._changes.last_commit_us / 1e6

    def _new_schema(self, schema: TableSchema) -> None:
        """Called when the stream announces a table with another schema than the topic's last one in this session."""
        relation = schema.relation
        self._deferred.pop(schema.topic, None)
        self._delivery.create_topics([schema.topic])
        if self._options.snapshot == "never":
            return
        try:
            table = self._tables.refresh_table(relation.schema, relation.name)
            if table.oid == relation.oid:
                self.snapshots.consider(table, schema)
                return
            self._tables.look()
        except LockNotAvailableError as error:
            logger.info("%s", error)
            self._deferred[schema.topic] = schema
            return
        except ConfigError as error:
            # The table was dropped, renamed or unpublished since. Its changes in the log still count.
            logger.info("%s", error)
        self.snapshots.restart_replaced_table(relation)

    def _check_periodically(self, stream: ReplicationStream) -> None:
        """Emits the heartbeat, updates the lag, and finds tables that changed without a row change."""
        now_ms = self._clock.monotonic_ms()
        interval_ms = int(self._options.heartbeat_s * 1000)
        if now_ms - self._checked_ms < interval_ms:
            return
        self._checked_ms = now_ms
        self._update_lag(stream)
        if not self._is_standby and now_ms - self._committed_ms >= interval_ms:
            # With it the slot moves on while other databases or tables fill the log, and a fenced capture notices it.
            emit_heartbeat(self._database)
        if self._options.snapshot != "never":
            try:
                found = self._tables.look()
            except LockNotAvailableError as error:
                logger.info("%s", error)
                return
            self.snapshots.forget_unpublished()
            for schema in list(self._deferred.values()):
                self._new_schema(schema)
            for table in found:
                self._delivery.create_topics([self._options.topic(table.schema, table.name)])
                self.snapshots.consider(table)

    def _update_lag(self, stream: ReplicationStream) -> None:
        options, status = self._options, self._status
        slot = read_slot(self._database, options.slot)
        if slot is None or slot.loss:
            why = "it was dropped" if slot is None else slot.loss
            raise DataLossError(
                f"slot {options.slot} is lost: {why}. The capture has read it up to {self.position_text}. {LOST}"
            )
        end = self._database.wal_position()
        status.lag_bytes = max(0, end - slot.confirmed_lsn)
        status.retained_bytes = max(0, end - (slot.restart_lsn or slot.confirmed_lsn))
        above = status.lag_bytes > options.lag_alert_bytes
        if above != bool(status.lag_alert):
            status.lag_alert = int(above)
            said = {
                "event": "lag_alert" if above else "lag_ok",
                "slot": options.slot,
                "lag_bytes": status.lag_bytes,
            }
            logger.log(
                logging.WARNING if above else logging.INFO,
                "slot %s holds %d bytes of Postgres's log, %s the alert at %d",
                options.slot,
                status.lag_bytes,
                "above" if above else "and is back below",
                options.lag_alert_bytes,
            )
            self._resources.on_event(said)


def _decoded_again(slot: SlotState | None, at: int) -> int:
    """Returns how much of the log Postgres would decode again to read on by SQL from `at`, and once more for the stream
    after it: it begins before the oldest transaction that is open. A smaller backlog is left to the stream."""
    return 0 if slot is None or slot.restart_lsn is None else max(0, at - slot.restart_lsn)
