"""The replication slot: it retains the WAL from the capture's position on.

The slot is never ahead of the position in Kafka. It is advanced only after the position is committed. If it is further
ahead, another reader consumed changes, and they are lost: this is an error. An existing slot is used as it is. It is
dropped only if a new snapshot was requested and the slot is unusable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from suiro.clock import SystemClock, sleep_s
from suiro.connect.postgres.encoding.names import quoted
from suiro.connect.postgres.server.database import Database, lsn_text, parse_lsn
from suiro.errors import BrokenConnectionError, ConfigError, DataLossError, UsageError

logger = logging.getLogger(__name__)

RELEASE_TIMEOUT_S = 60.0
RELEASE_POLL_S = 0.05
LOST = (
    'Changes since then are lost to this capture. Choose: start it once with --snapshot new, or snapshot = "new" in a '
    "file of connectors, which reads every table again and deletes from the topics the rows that no longer exist"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotState:
    """A row of pg_replication_slots. `sent_lsn`: how far the log was decoded for the reader of the slot, who has got
    nothing of transactions that are open; 0 if nobody reads it. `loss`: why the slot can no longer be read; empty if it
    can be."""

    plugin: str
    database: str
    active_pid: int | None
    confirmed_lsn: int
    restart_lsn: int | None
    sent_lsn: int
    loss: str


def identify_system(replication: Database) -> tuple[str, int]:
    """Returns the identifier that the database cluster got from initdb (copies of a cluster have the same), and the
    timeline, which changes with each promotion."""
    ((system, timeline, *_),) = replication.rows("IDENTIFY_SYSTEM", what="ask which database cluster this is")
    return str(system), int(timeline)


def read_slot(database: Database, name: str) -> SlotState | None:
    # As JSON, because Postgres 14 has fewer columns than 18.
    found = database.row(
        "select to_jsonb(s), (select sent_lsn from pg_stat_replication where pid = s.active_pid)"
        " from pg_replication_slots s where slot_name = %s",
        (name,),
        what=f"read slot {name}",
    )
    if found is None:
        return None
    line: dict[str, Any] = found[0]
    loss = line.get("invalidation_reason") or line.get("conflict_reason")
    if not loss and line.get("conflicting"):
        loss = "conflict with recovery"
    if not loss and line["wal_status"] == "lost":
        loss = "its log was removed"
    return SlotState(
        plugin=line["plugin"] or "(physical)",
        database=line["database"] or "",
        active_pid=line["active_pid"],
        confirmed_lsn=parse_lsn(line["confirmed_flush_lsn"]) if line["confirmed_flush_lsn"] else 0,
        restart_lsn=parse_lsn(line["restart_lsn"]) if line["restart_lsn"] else None,
        sent_lsn=parse_lsn(found[1]) if found[1] else 0,
        loss=loss or "",
    )


def check_timeline(name: str, replication: Database, *, before: int, now: int, position: int) -> None:
    """Raises `DataLossError` unless a promoted server has the log up to the position, which was read on the timeline
    `before`. The current end of its log does not tell that: the log has grown since."""
    if before == now:
        return
    end = _ends_of_timelines(replication, now).get(before, 0) if now > before else 0
    if position > end:
        raise DataLossError(
            f"the capture read the log up to {lsn_text(position)}, and this server has it only up to {lsn_text(end)}, "
            f"where its timeline {before} ended at a promotion: slot {name} would leave out what was written since. "
            f"{LOST}"
        )


def _ends_of_timelines(replication: Database, timeline: int) -> dict[int, int]:
    """Returns the LSN at which each earlier timeline ended."""
    ((_, content),) = replication.rows(f"TIMELINE_HISTORY {timeline}", what=f"read the history of timeline {timeline}")
    text = content if isinstance(content, str) else bytes(content).decode()  # bytes before Postgres 15
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {int(line[0]): parse_lsn(line[1]) for line in lines}


def check_slot(name: str, state: SlotState | None, *, database: str, position: int | None, end: int) -> None:
    """Raises an error if the capture would lose changes by going on from `position` (None: there is none yet). `end`:
    the end of the log."""
    if state is None:
        if position is not None:
            raise DataLossError(
                f"slot {name} does not exist any more, but the capture has a position ({lsn_text(position)}). "
                f"{LOST}; or restore the slot from where it was"
            )
        return
    if state.plugin != "pgoutput" or state.database != database:
        raise ConfigError(
            f"slot {name} is of plugin {state.plugin} in database {state.database or '(none)'}, not of pgoutput in "
            f"{database}: name another one with --slot"
        )
    if state.loss:
        raise DataLossError(
            f"slot {name} is invalidated ({state.loss}). {LOST}, after "
            f"SELECT pg_drop_replication_slot('{name}'); and see max_slot_wal_keep_size and "
            "idle_replication_slot_timeout for why"
        )
    if position is None:
        return
    if state.confirmed_lsn > position:
        raise DataLossError(
            f"slot {name} is at {lsn_text(state.confirmed_lsn)}, past this capture's position "
            f"{lsn_text(position)}: something else read from it. {LOST}"
        )
    if position > end:
        raise DataLossError(
            f"the capture's position {lsn_text(position)} lies past the end of Postgres's log ({lsn_text(end)}): the "
            f"database was restored from a backup, or is another one. {LOST}"
        )


def create_slot(replication: Database, name: str) -> tuple[int, str]:
    """Creates the slot. Postgres waits for the transactions that are open now. Returns the LSN where the slot begins,
    and the exported snapshot, which exists until the connection runs another statement or ends."""
    try:
        command = f"CREATE_REPLICATION_SLOT {quoted(name)} LOGICAL pgoutput EXPORT_SNAPSHOT"
        ((_, lsn, snapshot, _),) = replication.rows(command, what=f"create slot {name}")
    except UsageError as error:
        raise ConfigError(
            f"{error}. It needs max_replication_slots and max_wal_senders with room, and a role with REPLICATION "
            "(ALTER ROLE ... REPLICATION)"
        ) from error
    return parse_lsn(lsn), snapshot


def check_not_in_use(database: Database, name: str) -> None:
    """Called for a capture without a position. Raises `ConfigError` if something reads from the slot: another program,
    or a capture into another Kafka, which would lose the changes that this one takes. (A slot that is still being
    created has no LSN. A capture that is killed at its first start leaves such a slot.)"""
    state = read_slot(database, name)
    if state is None or state.active_pid is None or not state.confirmed_lsn:
        return
    reader = database.row(
        "select application_name from pg_stat_activity where pid = %s",
        (state.active_pid,),
        what=f"ask who reads from slot {name}",
    )
    if reader is not None:
        raise ConfigError(
            f"process {state.active_pid} of Postgres (application {reader[0] or '(no name)'!r}) reads from slot"
            f" {name}, and these topics have no position of it: it is not a forerunner of this capture. Choose: name"
            " another slot, or another topic prefix; or stop that reader first, if this capture is to go on in its"
            " place"
        )


def release_slot(database: Database, name: str, *, check: Callable[[], None]) -> None:
    """Takes the slot from an earlier capture that Kafka has fenced already, so it can no longer write anything. Calls
    `check` while it waits; an error of it ends the wait."""
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + int(RELEASE_TIMEOUT_S * 1000)
    asked: set[int] = set()
    while True:
        state = read_slot(database, name)
        if state is None or state.active_pid is None:
            return
        if state.active_pid not in asked:
            asked.add(state.active_pid)
            logger.warning("slot %s is held by process %d of Postgres: ending it", name, state.active_pid)
            try:
                database.rows("select pg_terminate_backend(%s)", (state.active_pid,), what=f"take slot {name} over")
            except UsageError as error:  # of another role: it must end by itself
                logger.warning("%s", error)
        if clock.monotonic_ms() > deadline_ms:
            raise BrokenConnectionError(
                f"slot {name} is still held by process {state.active_pid} of Postgres after {RELEASE_TIMEOUT_S:.0f} s; "
                "stop what reads from it, or name another slot"
            )
        check()
        sleep_s(RELEASE_POLL_S)


def may_be_older(database: Database, name: str, publication: str) -> bool:
    """Whether the slot may begin before the publication was created or altered. What ended before the slot's
    `catalog_xmin` was there when it began."""
    found = database.row(
        "select age(p.xmin) <= age(s.catalog_xmin) from pg_publication p, pg_replication_slots s where p.pubname = %s"
        " and s.slot_name = %s",
        (publication, name),
        what=f"compare slot {name} with publication {publication}",
    )
    return found is not None and bool(found[0])


def advance_slot(database: Database, name: str, lsn: int) -> None:
    """Advances the slot after reading by SQL. The replication protocol confirms LSNs by itself."""
    database.rows("select pg_replication_slot_advance(%s, %s)", (name, lsn_text(lsn)), what=f"advance slot {name}")


def drop_slot(database: Database, name: str) -> None:
    """Used only with `--snapshot new`, and only for an unusable slot."""
    database.rows("select pg_drop_replication_slot(%s)", (name,), what=f"drop slot {name}")
