"""Waits until snapshots see all transactions that were processed, and reports which transaction blocks and how long."""

from __future__ import annotations

import logging

from suiro.clock import SystemClock
from suiro.connect.postgres.encoding.names import quoted
from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.snapshot.visibility import RecentTransactions, Visibility

logger = logging.getLogger(__name__)

FIRST_REPORT_MS = 5_000  # the next ones follow after twice as long each time
REPORT_INTERVAL_MAX_MS = 600_000

_BACKENDS = (
    "select pid, datname, usename, application_name, state, wait_event, coalesce(extract(epoch from clock_timestamp() -"
    " xact_start), 0)::int8 from pg_stat_activity where backend_xid = %s::text::xid"
)
_PREPARED = (
    "select gid, database, extract(epoch from clock_timestamp() - prepared)::int8 from pg_prepared_xacts where"
    " transaction = %s::text::xid"
)


class VisibilityWait:
    """The wait of one session, on a primary. A standby has nothing to wait for."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._clock = SystemClock()
        self._since_ms: int | None = None
        self._next_report_ms = FIRST_REPORT_MS

    @property
    def seconds(self) -> float:
        """Returns how long the wait has lasted; 0 if nothing waits."""
        return 0.0 if self._since_ms is None else (self._clock.monotonic_ms() - self._since_ms) / 1000

    def is_over(self, recent: RecentTransactions) -> bool:
        """Whether a snapshot that is taken now sees everything that this session and earlier ones handed on."""
        snapshot = Visibility.parse(self._database.visible())
        if recent.all_seen_by(snapshot):
            if self._next_report_ms > FIRST_REPORT_MS:
                logger.info("transactions that rows waited for are visible, after %.0f s", self.seconds)
            self._since_ms, self._next_report_ms = None, FIRST_REPORT_MS
            return True
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
        elif now_ms - self._since_ms >= self._next_report_ms:
            self._next_report_ms += min(self._next_report_ms, REPORT_INTERVAL_MAX_MS)
            logger.warning(
                "rows are read once transactions are visible that were open when the session began, or that the stream "
                "gave already. For %.0f s this waits for %s",
                self.seconds,
                describe_transaction(self._database, recent.blocking_transaction(snapshot)),
            )
        return False


def describe_transaction(database: Database, xid: int) -> str:
    """Describes who has this transaction (32 bits) open, and what to do."""
    for pid, name, user, application, state, wait, age_s in database.rows(
        _BACKENDS, (xid,), what=f"look for transaction {xid}"
    ):
        end = (
            "its commit waits for a synchronous standby: bring that back, or change synchronous_standby_names"
            if wait == "SyncRep"
            else f"wait for its end, or SELECT pg_terminate_backend({pid})"
        )
        return (
            f"transaction {xid} of backend {pid} (application {application or '(no name)'!r}, user {user}, database "
            f"{name}, {state}, open for {age_s:,} s): {end}"
        )
    for gid, name, age_s in database.rows(_PREPARED, (xid,), what=f"look for transaction {xid}"):
        literal = database.literal(gid)
        return (
            f"transaction {xid} that was prepared {age_s:,} s ago in database {name}: COMMIT PREPARED {literal} or "
            f"ROLLBACK PREPARED {literal}"
        )
    role = quoted(str(database.rows("select current_user", what="ask who we are")[0][0]))
    return (
        f"transaction {xid}, of which pg_stat_activity shows this role no backend: let a superuser look, or GRANT "
        f"pg_read_all_stats TO {role}"
    )
