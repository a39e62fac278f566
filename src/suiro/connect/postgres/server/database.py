"""A connection to the captured database, and queries of its catalog.

Errors of Postgres are raised as errors of suiro: a lost or refused connection as `TransientError`, because the capture
restarts from its position; a rejected statement as `UsageError` with the message of Postgres.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import psycopg2
import psycopg2.errorcodes
import psycopg2.extensions

from suiro.connect.postgres.encoding.types import SESSION_SETTINGS
from suiro.errors import (
    BrokenConnectionError,
    ConfigError,
    FatalError,
    SuiroError,
    TransientError,
    UsageError,
)
from suiro.foundation.postgres_network import network_parameters

OLDEST_VERSION = 140000
SHARED_LOCK_TIMEOUT = "10s"  # of connections that share an exported snapshot
LOCK_TIMEOUT_MS = 1_000  # of statements between blocks of the stream, which waits meanwhile
LOCK_HOLDERS_SHOWN = 5
COPY_BYTES = 256 << 10  # of one write to a sink
_DROPPED = "could not open relation with OID"  # from a view of publications, without a specific code

# The timeouts are lifted because one connection holds the snapshot of a table for hours while others read it, and the
# catalogue is asked only now and then. The capture writes nothing but messages to itself, which must not wait for a
# synchronous standby. The stream brings rows that policies would hide, so reading a part of such a table is an error.
# The empty search path leaves only the server's own functions and operators: others would run as the capture's role.
_OWN_SETTINGS = {
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "synchronous_commit": "local",
    "row_security": "off",
    "search_path": "",
}
_SESSION = " ".join(
    f"-c {name}={value}" for name, value in {**SESSION_SETTINGS, **_OWN_SETTINGS}.items() if name != "client_encoding"
)
# A server that is older than a setting refuses a connection that names it.
_LIMITS_SINCE = {"idle_session_timeout": OLDEST_VERSION, "transaction_timeout": 170000}
_OPERATIONAL = frozenset({"08", "28", "40", "53", "54", "55", "57", "58"})
"""Classes of SQLSTATE that concern the server or the connection, not the statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    version: int
    database: str
    is_standby: bool


class LockNotAvailableError(TransientError):
    """Another session held a lock on the table for too long, or dropped the table meanwhile."""


def lsn_text(lsn: int) -> str:
    """Returns a log sequence number as Postgres prints it: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    high, found, low = text.partition("/")
    try:
        if not found:
            raise ValueError
        return (int(high, 16) << 32) | int(low, 16)
    except ValueError:
        raise FatalError(f"{text!r} is not a place in Postgres's log, such as 16/B374D848") from None


@contextmanager
def postgres_errors(what: str) -> Iterator[None]:
    """Raises errors of Postgres as errors of suiro. `what` was tried, such as "read table public.t"."""
    try:
        yield
    except SuiroError:
        raise
    except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
        raise _operational(what, error.pgcode or "", _message_of(error)) from error
    except psycopg2.Error as error:
        if error.pgcode == psycopg2.errorcodes.INTERNAL_ERROR and _DROPPED in str(error):
            raise LockNotAvailableError(f"{what}: a table was dropped while its lock was waited for") from error
        if type(error) is psycopg2.DatabaseError and not error.pgcode:
            # libpq lost the server in the middle of COPY, and has no message for it.
            raise BrokenConnectionError(f"{what}: lost Postgres: {_message_of(error)}") from error
        raise UsageError(f"{what}: Postgres says: {_message_of(error)}") from error


def refused(what: str, code: str, text: str) -> SuiroError:
    """Returns the error for a code of Postgres (SQLSTATE; empty if libpq has none)."""
    if code and code[:2] not in _OPERATIONAL:
        return UsageError(f"{what}: Postgres says: {text}")
    return _operational(what, code, text)


def _operational(what: str, code: str, text: str) -> SuiroError:
    if code == psycopg2.errorcodes.LOCK_NOT_AVAILABLE:
        return LockNotAvailableError(f"{what}: Postgres says: {text}")
    # 28: wrong user or password; 3D: no such database; 42: no permission. 53, 55, 57 and 58 may be temporary.
    if code[:2] in ("28", "3D", "42", "22", "0A") or "password authentication failed" in text:
        return UsageError(f"{what}: Postgres says: {text}")
    return BrokenConnectionError(f"{what}: lost Postgres, or could not reach it: {text}")


def _message_of(error: psycopg2.Error) -> str:
    diagnosis = getattr(error, "diag", None)
    primary = getattr(diagnosis, "message_primary", None)
    if not primary:
        return " ".join(str(error).split()) or type(error).__name__
    detail = getattr(diagnosis, "message_detail", None)
    hint = getattr(diagnosis, "message_hint", None)
    return "; ".join(str(part) for part in (primary, detail, hint) if part)


def parameters(dsn: str, settings: str = "") -> dict[str, Any]:
    """Returns parameters of libpq in addition to those of the DSN. The `options` of the DSN stay, except for settings
    that the capture sets itself."""
    given = psycopg2.extensions.parse_dsn(dsn)
    return {
        **network_parameters(given),
        "application_name": "suiro capture",
        "options": " ".join(part for part in (given.get("options"), _SESSION, settings) if part),
        "client_encoding": "UTF8",
    }


def lifted_limits(version: int) -> str:
    """Returns statements that lift the timeouts of a session on a server of this version."""
    return "; ".join(f"set {name} = 0" for name, since in _LIMITS_SINCE.items() if version >= since) or "select"


class Database:
    """A connection. Not thread-safe. Outside of `snapshot`, every statement is a transaction of its own.

    `lock_timeout_ms`: how long a statement waits for a lock on a table; 0: without a limit. `replication`: it takes the
    commands of the replication protocol.
    """

    def __init__(self, dsn: str, *, lock_timeout_ms: int = 0, replication: bool = False) -> None:
        mode = {"replication": "database"} if replication else {}
        with postgres_errors("connect for replication" if replication else "connect"):
            self._connection = psycopg2.connect(dsn, **parameters(dsn, f"-c lock_timeout={lock_timeout_ms}"), **mode)
            self._connection.autocommit = True
            with self._connection.cursor() as cursor:
                cursor.execute(lifted_limits(self._connection.server_version))
        self._type_names: dict[int, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def cancel(self) -> None:
        """Cancels the running statement; called from another thread."""
        try:
            self._connection.cancel()
        except psycopg2.Error:
            pass  # the connection is closed already

    def rows(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None, *, what: str
    ) -> list[tuple[Any, ...]]:
        with postgres_errors(what), self._connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall()) if cursor.description is not None else []

    def row(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None, *, what: str
    ) -> tuple[Any, ...] | None:
        found = self.rows(sql, parameters, what=what)
        return found[0] if found else None

    def literal(self, text: str) -> str:
        """Quotes a literal, for statements without parameters (COPY)."""
        adapted = psycopg2.extensions.QuotedString(text)
        adapted.prepare(self._connection)
        return str(adapted.getquoted().decode())

    def type_name(self, oid: int) -> str:
        """The type name for a cast that does not truncate; of a domain, that of the type below it."""
        known = self._type_names.get(oid)
        if known is None:
            # Without a modifier, character is character(1) and bit is bit(1). With -1 they are bpchar and "bit".
            ((known,),) = self.rows(
                "with recursive below(oid) as (select %s::oid union all select typbasetype from below join pg_type"
                " using (oid) where typtype = 'd') select format_type(oid, -1) from below where oid not in"
                " (select oid from pg_type where typtype = 'd')",
                (oid,),
                what="ask for the name of a type",
            )
            self._type_names[oid] = str(known)
        return str(known)

    def copy(self, sql: str, sink: Any, *, what: str) -> None:
        """Calls `sink.write` with the header and with each row."""
        with postgres_errors(what), self._connection.cursor() as cursor:
            cursor.copy_expert(sql, sink)

    def copy_until_full(self, sql: str, sink: Any, *, what: str) -> bytes:
        """Returns what `sink` has taken. A full sink cancels the statement. The transaction goes on in both cases, and
        keeps the locks of a statement that came to its end."""
        self.rows("savepoint before_copy", what=what)
        buffered = io.BufferedWriter(sink, buffer_size=COPY_BYTES)
        try:
            self.copy(sql, buffered, what=what)
            buffered.flush()
        except BrokenConnectionError:
            if not sink.is_full:
                raise
            self.rows("rollback to savepoint before_copy", what=what)
        self.rows("release savepoint before_copy", what=what)
        taken: bytes = sink.taken()
        return taken

    @contextmanager
    def snapshot(self, name: str | None = None) -> Iterator[None]:
        """All statements within see one state of the database: that of an exported snapshot, or the current one."""
        with postgres_errors("begin a snapshot"), self._connection.cursor() as cursor:
            cursor.execute("begin isolation level repeatable read read only")
            if name is not None:
                cursor.execute("set transaction snapshot %s", (name,))
                # Other connections with this snapshot keep the tables locked until everything was read. If an ALTER
                # TABLE waits for them, this connection waits behind it, and Postgres detects no deadlock. After the
                # timeout, the next session reads the rest while changes flow.
                cursor.execute("set local lock_timeout = %s", (SHARED_LOCK_TIMEOUT,))
        try:
            yield
        finally:
            try:
                with self._connection.cursor() as cursor:
                    cursor.execute("rollback")  # it only read
            except psycopg2.Error:
                pass  # the connection is lost, and with it the snapshot

    @contextmanager
    def own_snapshot(self) -> Iterator[None]:
        """As `snapshot`; does nothing within a snapshot."""
        if self._connection.info.transaction_status != psycopg2.extensions.TRANSACTION_STATUS_IDLE:
            yield
            return
        with self.snapshot():
            yield

    def facts(self) -> ServerInfo:
        found = self.row(
            "select current_setting('server_version_num')::int, current_database(), pg_is_in_recovery(),"
            " current_setting('wal_level'), current_setting('server_encoding')",
            what="ask the server what it is",
        )
        assert found is not None
        facts = ServerInfo(version=found[0], database=found[1], is_standby=found[2])
        if facts.version < OLDEST_VERSION:
            raise ConfigError(
                f"Postgres {facts.version // 10000} is too old: capture needs 14 or later, whose slots have "
                "messages of the log"
            )
        if found[3] != "logical":
            raise ConfigError(
                f"wal_level is {found[3]}: changes cannot be decoded from such a log. Run ALTER SYSTEM SET "
                "wal_level = 'logical' and restart Postgres"
            )
        if found[4] == "SQL_ASCII":
            raise ConfigError(
                f"database {facts.database} has the encoding SQL_ASCII: Postgres does not know what its texts mean, "
                "and records are UTF-8. Choose: capture a copy of it in a database with a real encoding (pg_dump, then "
                "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0)"
            )
        return facts

    def wal_position(self) -> int:
        """Returns the flushed LSN (on a standby: the replayed LSN)."""
        return self._position("pg_last_wal_replay_lsn()", "pg_current_wal_flush_lsn()")

    def insert_position(self) -> int:
        """Returns the insert LSN (on a standby: the replayed LSN)."""
        return self._position("pg_last_wal_replay_lsn()", "pg_current_wal_insert_lsn()")

    def received_position(self) -> int:
        """Returns an LSN after everything that the standby has replayed or is replaying."""
        return self._position("greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())", "null")

    def replayed_position(self) -> int:
        """Returns the replayed LSN of a standby; later snapshots see what was committed before it."""
        return self._position("pg_last_wal_replay_lsn()", "null")

    def _position(self, of_standby: str, of_primary: str) -> int:
        found = self.row(
            f"select case when pg_is_in_recovery() then {of_standby} else {of_primary} end",
            what="ask where the log ends",
        )
        assert found is not None
        if found[0] is None:
            raise BrokenConnectionError("ask where the log ends: this standby has been promoted to a primary")
        return parse_lsn(found[0])

    def visible(self) -> str:
        """Returns the current snapshot as text, or that of the open transaction."""
        ((text,),) = self.rows("select pg_current_snapshot()::text", what="take a snapshot")
        return str(text)

    def new_transaction(self) -> int:
        """Returns a new transaction id; all open transactions have lower ids."""
        ((xid,),) = self.rows("select pg_current_xact_id()::text", what="begin a transaction")
        return int(xid)

    def lock_holders(self) -> str:
        """Describes the sessions that hold or wait for exclusive locks on tables."""
        found = self.rows(
            "select n.nspname || '.' || c.relname, l.granted, l.pid, coalesce(nullif(a.application_name, ''),"
            " a.usename, '?'), coalesce(a.state, 'prepared transaction') from pg_locks l join pg_class c on c.oid ="
            " l.relation join pg_namespace n on n.oid = c.relnamespace left join pg_stat_activity a on a.pid = l.pid"
            " where l.mode = 'AccessExclusiveLock' and c.relkind in ('r', 'p') and n.nspname not in ('pg_catalog',"
            " 'pg_toast') and l.database = (select oid from pg_database where datname = current_database())"
            f" order by l.granted desc, l.pid limit {LOCK_HOLDERS_SHOWN}",
            what="ask who locks tables",
        )
        said = [
            f"process {pid} ({application}, {state}) {'has locked' if granted else 'waits for a lock on'} {table}"
            for table, granted, pid, application, state in found
        ]
        return "; ".join(said) or "the lock is free by now"
