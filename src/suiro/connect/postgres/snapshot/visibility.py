"""Decides which transactions a snapshot sees, and so whether a row is older or newer than a change of the stream, and
waits until snapshots see all transactions that were processed."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suiro.clock import SystemClock
from suiro.connect.postgres.encoding.names import quoted
from suiro.connect.postgres.encoding.pgoutput import Int64s
from suiro.connect.postgres.server.database import Database

logger = logging.getLogger(__name__)

KEPT = 100_000  # beyond that they are forgotten, and everything open is waited for
_HALF = 1 << 31
_ALL = (1 << 32) - 1

Booleans = npt.NDArray[np.bool_]

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


@dataclass(frozen=True, slots=True)
class Visibility:
    """The value of `pg_current_snapshot()`. All transactions below `begin` are finished, and so are those below `end`
    that are not `in_progress`. Numbers are the low 32 bits, except that `begin` has all 64.

    A standby does not tell which transactions are in progress. Between `begin` and `end` it certainly sees only what it
    had replayed before (`replayed`: an LSN; None: this is not a standby).
    """

    begin: int
    end: int
    in_progress: Int64s
    replayed: int | None = None

    @classmethod
    def parse(cls, text: str, *, replayed: int | None = None) -> Visibility:
        """`10:20:10,14,15`."""
        begin, end, open_ = text.split(":")
        numbers = [int(number) & _ALL for number in open_.split(",") if number]
        return cls(int(begin), int(end) & _ALL, np.array(numbers, np.int64), replayed)

    def sees(self, xids: Int64s, lsns: Int64s) -> Booleans:
        """Returns for each top transaction, committed at its LSN, true if the snapshot certainly sees it."""
        if self.replayed is None:
            return _are_before(xids, self.end) & ~np.isin(xids, self.in_progress)
        seen: Booleans = _are_before(xids, self.begin & _ALL) | (lsns < self.replayed)
        return seen

    def misses(self, xids: Int64s, lsns: Int64s) -> Booleans:
        """Returns true if the snapshot certainly does not see it. On a standby, `sees` and this may both be false."""
        return ~(self.sees(xids, lsns) if self.replayed is None else _are_before(xids, self.end))


def _are_before(xids: Int64s, xid: int) -> Booleans:
    # Transaction numbers wrap around. Two that are compared are never half the range apart.
    found: Booleans = ((xids - xid) & _ALL) >= _HALF
    return found


class RecentTransactions:
    """Transactions of a primary that were handed on lately. A commit is in the log a moment before snapshots see it
    (with synchronous replication, as long as the standby is away). So a snapshot may be behind the stream, and its rows
    would overwrite newer ones. (A standby decodes only what it has replayed, and that is visible.)

    A session does not know what earlier sessions handed on, nor what was before the slot. All these transactions had
    their numbers when the session began, so `wait_for_all_before` a number that was given out since. The same is true
    of transactions that are forgotten because there are too many. A number that is waited for is not replaced by a
    later one: under load, with transactions that overlap, no number would ever be reached.
    """

    def __init__(self) -> None:
        self._xids: deque[Int64s] = deque()
        self._count = 0
        self._barrier = 0  # in 64 bits; 0: there is nothing to wait for
        self._next_barrier = 0  # for transactions that were forgotten since
        self.is_incomplete = True  # `wait_for_all_before` has to be called before snapshots can be judged

    def wait_for_all_before(self, xid: int) -> None:
        """`xid`: a transaction's number in 64 bits that was given out before this call."""
        self.is_incomplete = False
        if self._barrier:
            self._next_barrier = xid
        else:
            self._barrier = xid

    def add(self, xids: Int64s) -> None:
        if not len(xids):
            return
        self._xids.append(xids)
        self._count += len(xids)
        if self._count > KEPT:
            self._xids.clear()
            self._count = 0
            self.is_incomplete = True

    def all_seen_by(self, snapshot: Visibility) -> bool:
        """Forgets the transactions that this snapshot sees: later ones see them, too."""
        for _ in range(2):
            if snapshot.begin >= self._barrier:
                self._barrier, self._next_barrier = self._next_barrier, 0
        unseen = [xids[~snapshot.sees(xids, np.zeros_like(xids))] for xids in self._xids]
        self._xids = deque(xids for xids in unseen if len(xids))
        self._count = sum(len(xids) for xids in self._xids)
        return not (self.is_incomplete or self._barrier or self._count)

    def blocking_transaction(self, snapshot: Visibility) -> int:
        """Returns a transaction that this snapshot waits for, in 32 bits."""
        return snapshot.begin & _ALL if self._barrier or not self._xids else int(self._xids[0][0])


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
