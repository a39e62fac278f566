"""`PostgresCapture`: the tables of a database as topics, first a snapshot and then every change, exactly once.

The capture runs one session after another until it is stopped. A session fences its predecessor, reads the position
and continues from there. If it loses Postgres, Kafka or the registry, it ends, and the next session starts. Sessions
share no state except the position, so a kill needs no special handling.

A Kafka transaction ends between two Postgres transactions and includes the position after the first one. The slot is
confirmed only after that commit. See docs/decisions for why capture is exactly once.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from psycopg2.extensions import parse_dsn

from suiro.client import Client
from suiro.clock import SystemClock
from suiro.connect.datasets import captured, postgres_namespace
from suiro.connect.postgres.delivery import Delivery
from suiro.connect.postgres.log_messages import emit_heartbeat
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.postgres.progress import SchemaChange, SchemaChanges
from suiro.connect.postgres.resources import Resources
from suiro.connect.postgres.server.database import (
    LOCK_TIMEOUT_MS,
    Database,
    ServerInfo,
    parse_lsn,
)
from suiro.connect.postgres.server.publication import ensure_publication
from suiro.connect.postgres.server.slot import (
    advance_slot,
    check_not_in_use,
    check_slot,
    check_timeline,
    create_slot,
    drop_slot,
    identify_system,
    may_be_older,
    read_slot,
    release_slot,
)
from suiro.connect.postgres.session import Session, Stopped
from suiro.connect.postgres.snapshot.topic_state import ValuesFile
from suiro.connect.postgres.snapshot.visibility import (
    RecentTransactions,
    Visibility,
    VisibilityWait,
    describe_transaction,
)
from suiro.connect.postgres.status import CaptureStatus
from suiro.connect.postgres.tables import Tables
from suiro.errors import ConfigError, DataLossError, FencedError, TransientError
from suiro.foundation.process import Backoff
from suiro.foundation.threads import settle
from suiro.registry import RegistryClient
from suiro.telemetry import Datasets, Traces

logger = logging.getLogger(__name__)

SKIPS_UNPUBLISHED = 180000  # the version from which changes from before the publication are skipped
SLOW_SLOT_S = 2.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
TABLES_SHOWN = 200
"""The limit of tables in the progress that is served. Those that are not complete come first."""

Event = Callable[[dict[str, Any]], None]


class PostgresCapture:
    """Runs until `stop`, which may be called from any thread or signal handler.

    `on_event` gets what the command prints: `{"event": "ready", ...}` once all tables are read and changes flow.
    `snapshot`: what the next session begins with. A new snapshot begins once, and later sessions continue it.
    `traces` gets spans of captured transactions; the caller closes it.
    """

    def __init__(self, options: CaptureOptions, *, on_event: Event | None = None, traces: Traces | None = None) -> None:
        self.options = options
        self._traces = traces
        self.status = CaptureStatus()
        self._on_event = on_event or (lambda event: None)
        self._stop = threading.Event()
        # A stop must end a wait for the server immediately, also when a signal handler calls it.
        self._wakeup, self._wakeup_sender = socket.socketpair()
        self._wakeup_sender.setblocking(False)
        self._clock = SystemClock()
        self._schema_changes = SchemaChanges(self._clock, self._note_schema_change)
        self.snapshot = options.snapshot
        self._is_ready = False
        self._tables: Tables | None = None  # of the last session
        self._running: Session | None = None  # the current session, or the last one
        self._database = ""
        # Of the last session. With its identity, a new session does not fence another capture that took over.
        self._delivery: Delivery | None = None
        self._timed_out_at = -1  # the position before a transaction that was open for too long

    def stop(self) -> None:
        self._stop.set()
        try:
            self._wakeup_sender.send(b"\0")
        except (BlockingIOError, OSError):
            pass  # it is awake already, or has ended

    def datasets(self) -> Datasets:
        """The tables of the publication and their topics, for OpenLineage; none before the first session. Called by
        other threads."""
        options, tables = self.options, self._tables
        published = [] if tables is None else list(tables.published.values())
        return captured(
            [(one.full_name, options.topic(one.schema, one.name)) for one in published],
            postgres_namespace(parse_dsn(options.dsn)),
            self._database,
            options.bootstrap_servers,
            options.registry,
        )

    def progress(self) -> dict[str, Any]:
        """Returns the progress of each table and the changes of schemas, as values of JSON. Called by other threads."""
        session, status = self._running, self.status
        tables = [] if session is None else session.snapshots.progress()
        return {
            "position": None if session is None else session.position_text,
            "lag_bytes": status.lag_bytes,
            "retained_bytes": status.retained_bytes,
            "last_commit_ms": int(status.last_commit_seconds * 1_000) or None,
            "tables_in_all": len(tables),
            "tables_complete": sum(one["state"] == "complete" for one in tables),
            "tables": tables[:TABLES_SHOWN],
            "schema_changes": [asdict(one) for one in self._schema_changes.newest_first()],
        }

    def _note_schema_change(self, change: SchemaChange) -> None:
        logger.info("table %s changed: %s", change.table, "; ".join(change.changes))
        self._on_event({"event": "schema_changed", **asdict(change)})

    def run(self) -> None:
        """Returns after `stop`. Raises errors that another session would not solve."""
        base = self.options.state_directory
        directory = Path(tempfile.mkdtemp(prefix="suiro-capture-")) if base is None else base / self.options.name
        directory.mkdir(parents=True, exist_ok=True)
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        try:
            while not self._stop.is_set():
                began_ms = self._clock.monotonic_ms()
                try:
                    self._session(directory)
                except Stopped:
                    return
                except FencedError as error:
                    if self._may_repeat():
                        logger.warning("starting over: a transaction was open for too long: %s", error)
                        self.status.restarts += 1
                        continue
                    raise FencedError(
                        f"another capture took over {self.options.name!r}, or a transaction was open for longer than "
                        f"{self.options.transaction_timeout_ms:,} ms; this one ends. Two captures at once need "
                        f"different topic prefixes or slots ({error.args[0]})",
                        error.code_name,
                    ) from error
                except TransientError as error:
                    if self._stop.is_set():
                        return
                    logger.warning("starting over: %s", error)
                    self.status.restarts += 1
                    if self._clock.monotonic_ms() - began_ms > LONGEST_PAUSE_S * 2000:
                        backoff.reset()  # the session had run for a while
                    backoff.wait(self._stop)
        finally:
            for end in (self._wakeup, self._wakeup_sender):
                end.close()  # `suiro connect` makes another capture for each restart
            if base is None:
                shutil.rmtree(directory, ignore_errors=True)

    def _may_repeat(self) -> bool:
        """Whether the coordinator ended a transaction that was open for too long, and no other capture took over: this
        process did not run for a while (a machine that slept). If it happens twice at one position, the transaction is
        too large."""
        position = 0 if self._running is None else self._running.committed
        if self._delivery is None or not self._delivery.has_aborted or position == self._timed_out_at:
            return False
        self._timed_out_at = position
        return True

    def _session(self, directory: Path) -> None:
        options = self.options
        with ExitStack() as stack:
            database = stack.enter_context(Database(options.dsn, lock_timeout_ms=LOCK_TIMEOUT_MS))
            facts = database.facts()
            replication = stack.enter_context(Database(options.dsn, replication=True))
            system, timeline = identify_system(replication)
            client = stack.enter_context(Client(options.bootstrap_servers, settings=options.kafka_settings))
            registry = stack.enter_context(RegistryClient(options.registry))
            delivery = self._delivery = Delivery(client, options, self._delivery, traces=self._traces)
            stack.callback(delivery.close)
            position, parts = delivery.fence()
            if position is None:
                check_not_in_use(database, options.slot)
            release_slot(database, options.slot, check=self._check_stopped)
            self._check_source(position, system, facts.database)
            is_new_publication = not facts.is_standby and ensure_publication(database, options, facts.version)
            tables = Tables(database, registry, options, facts.version, self._schema_changes)
            tables.look()
            self._tables, self._database = tables, facts.database
            if not tables.published:
                raise ConfigError(
                    f"publication {options.publication} has none of the tables to capture "
                    f"({', '.join(options.tables) or 'all'}): create them first, or add them to it"
                )
            start, exported = self._start(database, replication, facts, timeline, position)
            if exported is None and (position is None or self.snapshot == "new"):
                start = self._skip_unpublished(database, facts, start, is_new_publication=is_new_publication)
            source: dict[str, str | int] = {
                "system": system,
                "database": facts.database,
                "slot": options.slot,
            }
            if not facts.is_standby:  # which can get another one while it is read
                source["timeline"] = timeline
            values = ValuesFile(directory / "last.values", memory_bytes=options.memory_bytes)
            stack.callback(values.close)
            resources = Resources(
                options=options,
                database=database,
                is_standby=facts.is_standby,
                tables=tables,
                delivery=delivery,
                client=client,
                registry=registry,
                values=values,
                status=self.status,
                stopped=self._stop,
                wakeup=self._wakeup,
                on_event=self._on_event,
            )
            session = Session(resources, source=source, position=start, parts=parts)
            stack.callback(session.close)
            self._running = session
            session.begin_snapshots(self.snapshot if position is None or self.snapshot == "new" else "resume")
            self.snapshot = "initial" if self.snapshot == "new" else self.snapshot
            if exported is not None:
                session.read_exported(exported)
            replication.close()
            session.stream(self._ready)

    def _check_stopped(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def _start(
        self,
        database: Database,
        replication: Database,
        facts: ServerInfo,
        timeline: int,
        position: dict[str, Any] | None,
    ) -> tuple[int, str | None]:
        """Returns where the stream begins, and the snapshot that a new slot has exported."""
        options = self.options
        state = read_slot(database, options.slot)
        known = None if position is None else parse_lsn(position["lsn"])
        try:
            check_slot(options.slot, state, database=facts.database, position=known, end=database.wal_position())
            if position is not None and known is not None and "timeline" in position:
                before = position["timeline"]
                check_timeline(options.slot, replication, before=before, now=timeline, position=known)
        except DataLossError as error:
            if self.snapshot != "new":
                raise
            logger.warning("%s", error)
            if state is not None:
                drop_slot(database, options.slot)
            state, known = None, None
        if state is None:
            created = self._create_slot(database, replication, is_standby=facts.is_standby)
            logger.info("created slot %s", options.slot)
            return created
        return max(known or 0, state.confirmed_lsn), None

    def _skip_unpublished(self, database: Database, facts: ServerInfo, start: int, *, is_new_publication: bool) -> int:
        """Advances a slot that may be older than the publication, and returns where the stream begins. An older
        Postgres cannot decode earlier changes. None of them is published, and the tables are read later."""
        if facts.is_standby or facts.version >= SKIPS_UNPUBLISHED:
            return start
        # An earlier start may have created the publication and ended before it advanced the slot.
        is_older = is_new_publication or (
            self.snapshot != "never" and may_be_older(database, self.options.slot, self.options.publication)
        )
        if not is_older:
            return start
        before = RecentTransactions()
        before.wait_for_all_before(database.new_transaction())
        wait = VisibilityWait(database)
        while not wait.is_over(before):
            self.status.visibility_wait_seconds = wait.seconds
            if self._stop.wait(FIRST_PAUSE_S):
                raise Stopped
        emit_heartbeat(database)  # all commits before it are flushed, also asynchronous ones
        end = database.wal_position()
        advance_slot(database, self.options.slot, end)
        return end

    def _create_slot(self, database: Database, replication: Database, *, is_standby: bool) -> tuple[int, str]:
        """Creates the slot on a thread: this waits for transactions that are open now, and a stop must not wait."""
        created: Future[tuple[int, str]] = Future()
        create = partial(create_slot, replication, self.options.slot)
        threading.Thread(target=settle, args=(created, create), name="suiro-create-slot", daemon=True).start()
        wait([created], SLOW_SLOT_S)
        if not created.done():
            oldest = Visibility.parse(database.visible()).begin & 0xFFFFFFFF
            logger.warning(
                "creating slot %s waits for %s",
                self.options.slot,
                "the primary: run SELECT pg_log_standby_snapshot() there"
                if is_standby
                else f"transactions that are open; the oldest is {describe_transaction(database, oldest)}",
            )
        while not created.done():
            wait([created], SLOW_SLOT_S / 10)
            if self._stop.is_set():
                replication.cancel()
                wait([created], SLOW_SLOT_S)
                raise Stopped
        return created.result()

    def _check_source(self, position: dict[str, Any] | None, system: str, database: str) -> None:
        if position is None or self.snapshot == "new":
            return
        if (position.get("system"), position.get("database")) != (system, database):
            raise ConfigError(
                f"the position of {self.options.name!r} is of database {position.get('database')!r} in cluster "
                f"{position.get('system')}, not of {database!r} in {system}. Choose: the right --dsn; another "
                "--topic-prefix; or --snapshot new, if these topics are to hold this database from now on"
            )

    def _ready(self, session: Session) -> None:
        if self._is_ready:
            return
        self._is_ready = True
        self._on_event(
            {
                "event": "ready",
                "name": self.options.name,
                "slot": self.options.slot,
                "publication": self.options.publication,
                "lsn": session.position_text,
                "topics": session.topics,
                "rows": session.snapshots.rows,
                "pid": os.getpid(),
            }
        )
