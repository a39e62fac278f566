"""A store in a separate schema of a Postgres database. People may also read `rows` there with SQL.

COPY writes a batch into a temporary table. Four statements then move replaced rows into `history` and keys into
`changes`, and execute deletions and upserts.

Between two transactions, a pooler (PgBouncer) may switch to another server connection, with the settings of another
client. So each transaction names the schema, and nothing is prepared on the server.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from suiro.errors import ConfigError, UsageError
from suiro.foundation.postgres_network import network_parameters
from suiro.views.store.conditions import SearchWord
from suiro.views.store.json_text import canonical
from suiro.views.store.rows import (
    Prepared,
    QuestionTooLargeError,
    StoreBrokenError,
    StoreFullError,
    StoreUnavailableError,
)
from suiro.views.store.tables import FEW_ROWS, FORMAT_VERSION, PAGE_CHARS, Store

if TYPE_CHECKING:
    from suiro.views.definition import VersionSpec

LONGEST_NAME = 63
QUESTION_LIMIT_MS = 10_000
CONNECT_TIMEOUT_S = 10
DROP_WAIT_MS = 2_000
"""The wait for readers of the store. A comparison may read for an hour, and the caller has other versions to tend."""
LOCK_WAIT_MS = 10_000
"""The wait of a reader for a lock, such as that of ALTER TABLE, unless the role or the server has a `lock_timeout`."""

# Timeouts of the role or the server, until the end of a transaction that would take as long at the next attempt.
# `transaction_timeout` exists from Postgres 17 on.
_LIFT = (
    "SELECT set_config(name, '0', true) FROM unnest(ARRAY[{}]) AS of_role (name) "
    "WHERE current_setting(name, true) IS NOT NULL"
)
# A writer that is stopped must not keep its lock, so it keeps `lock_timeout` and that of idle transactions.
_LIFT_FOR_CUT = _LIFT.format("'statement_timeout', 'transaction_timeout'")
# While one store of a comparison is read, the transaction of the other is idle.
_LIFT_FOR_COMPARISON = _LIFT.format("'statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout'")

# The rows of a page of large rows, and perhaps some more: a character has four bytes at most. `octet_length` reads no
# value that Postgres keeps out of line.
_OF_PAGE = (
    "SELECT key, columns, value, hash FROM (SELECT page.*, sum(octet_length(value)) OVER (ORDER BY key ROWS BETWEEN "
    "UNBOUNDED PRECEDING AND 2 PRECEDING) AS before FROM ({}) AS page) AS sized WHERE coalesce(before, 0) <= ? "
    "ORDER BY key"
)

_LIMIT_LOCKS = "SELECT set_config('lock_timeout', {}, true) WHERE current_setting('lock_timeout') = '0'"

_TABLES = """
CREATE TABLE meta (format int NOT NULL, owner text NOT NULL, key_types text NOT NULL);
CREATE TABLE cuts (number bigint PRIMARY KEY, time_ms bigint NOT NULL, cut text NOT NULL);
CREATE TABLE rows (key bytea PRIMARY KEY, since bigint NOT NULL, hash bigint NOT NULL, columns text NOT NULL,
                   value text NOT NULL, words tsvector);
CREATE TABLE history (key bytea, until bigint, since bigint NOT NULL, hash bigint NOT NULL, columns text NOT NULL,
                      value text NOT NULL, words tsvector, PRIMARY KEY (key, until));
CREATE TABLE changes (cut bigint, key bytea, PRIMARY KEY (cut, key));
"""
_SEARCH_INDEXES = """
CREATE INDEX rows_by_word ON rows USING gin (words);
CREATE INDEX history_by_word ON history USING gin (words);
"""
_BATCH_TABLES = """
CREATE TEMP TABLE IF NOT EXISTS batch (key bytea PRIMARY KEY, hash bigint, columns text, value text, words text[])
ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS met (key bytea PRIMARY KEY) ON COMMIT DELETE ROWS;
"""
_COPY = "COPY batch (key, hash, columns, value, words) FROM STDIN (FORMAT binary)"
_COPY_TYPES = ("bytea", "int8", "text", "text", "text[]")

# A value that the same cut wrote before was in no cut's state: it leaves no history.
_MOVES = (
    "INSERT INTO changes SELECT %(cut)s, b.key FROM batch b LEFT JOIN rows r USING (key) "
    "WHERE r.value IS DISTINCT FROM b.value ON CONFLICT DO NOTHING",
    "INSERT INTO history SELECT key, %(cut)s, r.since, r.hash, r.columns, r.value, r.words FROM rows r "
    "JOIN batch b USING (key) WHERE r.since < %(cut)s AND r.value IS DISTINCT FROM b.value",
    "DELETE FROM rows r USING batch b WHERE r.key = b.key AND b.value IS NULL",
    "INSERT INTO rows AS r SELECT key, %(cut)s, hash, columns, value, array_to_tsvector(words) FROM batch "
    "WHERE value IS NOT NULL ON CONFLICT (key) DO UPDATE SET since = excluded.since, hash = excluded.hash, "
    "value = excluded.value, words = excluded.words WHERE r.value <> excluded.value",
)
_UNMET = (
    "INSERT INTO changes SELECT %(cut)s, key FROM rows r WHERE NOT EXISTS (SELECT FROM met m WHERE m.key = r.key) "
    "ON CONFLICT DO NOTHING",
    "INSERT INTO history SELECT key, %(cut)s, since, hash, columns, value, words FROM rows r WHERE since < %(cut)s AND "
    "NOT EXISTS (SELECT FROM met m WHERE m.key = r.key)",
    "DELETE FROM rows r WHERE NOT EXISTS (SELECT FROM met m WHERE m.key = r.key)",
)
_PRUNE_HISTORY = (
    "DELETE FROM history h USING unnest(%s::bigint[], %s::bytea[]) AS d (cut, key) "
    "WHERE h.until = d.cut AND h.key = d.key"
)
_PRUNE_CHANGES = (
    "DELETE FROM changes c USING unnest(%s::bigint[], %s::bytea[]) AS d (cut, key) "
    "WHERE c.cut = d.cut AND c.key = d.key"
)

_FULL = (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory, psycopg.errors.ConfigurationLimitExceeded)


class PostgresStore(Store):
    looks_up_at_once = False
    database_error = psycopg.Error
    row_lock = " FOR UPDATE"

    def __init__(self, spec: VersionSpec, dsn: str) -> None:
        """Creates the schema if it does not exist. Raises `ConfigError`, `StoreBrokenError`,
        `StoreUnavailableError`."""
        super().__init__(spec)
        try:
            given = {"connect_timeout": CONNECT_TIMEOUT_S, **psycopg.conninfo.conninfo_to_dict(dsn)}
        except psycopg.Error as error:
            raise ConfigError(
                f"the store of view {spec.view!r}: no connection string of Postgres: {str(error).strip()}"
            ) from None
        self._dsn = psycopg.conninfo.make_conninfo("", **given)
        self._network = network_parameters(given)
        self.schema = schema_of(spec)
        self._in_schema = sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(self.schema))
        self._limit_locks = sql.SQL(_LIMIT_LOCKS).format(sql.Literal(str(LOCK_WAIT_MS)))
        self._begin = sql.SQL("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {}; {}").format(
            self._in_schema, self._limit_locks
        )
        self._begin_writing = sql.SQL("{}; {}").format(self._in_schema, sql.SQL(_LIFT_FOR_CUT))
        self._make()

    @contextmanager
    def held(self, *, is_long: bool = False) -> Iterator[None]:
        with super().held():
            if is_long:
                self._read(_LIFT_FOR_COMPARISON)
            yield

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            self._dsn,
            autocommit=True,
            prepare_threshold=None,
            # Rows and cuts are JSON in UTF-8, whatever the database, the role or the environment says.
            client_encoding="utf8",
            application_name=f"suiro view {self.spec.view} v{self.spec.version}",
            **self._network,
        )

    def _make(self) -> None:
        with self._transaction() as connection:
            connection.execute(self._limit_locks)
            # Two may open it at once.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self.schema,))
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.schema)))
            made = connection.execute(
                "SELECT to_regclass(%s) IS NOT NULL",
                (sql.Identifier(self.schema, "meta").as_string(connection),),
            )
            if not _one(made)[0]:
                connection.execute(_TABLES.encode())
                if self.spec.search:
                    connection.execute(_SEARCH_INDEXES.encode())
                connection.execute(
                    "INSERT INTO meta VALUES (%s, %s, %s)",
                    (FORMAT_VERSION, self._owner(), canonical([[] for _ in self.spec.key])),
                )
            version, owner = _one(connection.execute("SELECT format, owner FROM meta"))
            self._check_owner(version, owner, f"schema {self.schema}")

    def _run(self, connection: psycopg.Connection[Any], statement: str, *parameters: Any) -> psycopg.Cursor[Any]:
        return connection.execute(statement.replace("?", "%s").encode(), parameters)

    def _begin_reading(self, connection: psycopg.Connection[Any], limited: bool) -> None:
        connection.execute(self._begin)
        if limited:
            connection.execute(f"SET LOCAL statement_timeout = {QUESTION_LIMIT_MS}".encode())

    def _page(
        self, connection: psycopg.Connection[Any], limit: int, statement: str, *parameters: Any
    ) -> tuple[list[tuple[Any, ...]], bool]:
        if limit > FEW_ROWS:
            statement, parameters = _OF_PAGE.format(statement), (*parameters, 4 * PAGE_CHARS)
        return super()._page(connection, limit, statement, *parameters)

    def _reader(self) -> psycopg.Connection[Any]:
        while True:
            try:
                connection: psycopg.Connection[Any] = self._readers.get_nowait()
            except queue.Empty:
                return self._connect()
            try:
                connection.execute(b"SELECT")  # the server may have closed an idle connection
                return connection
            except psycopg.OperationalError:
                connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        with self._writing, self._translated_errors():
            if self._writer is None or self._writer.closed:
                self._writer = self._connect()
            with self._writer.transaction():
                self._writer.execute(self._begin_writing)
                yield self._writer

    @contextmanager
    def _translated_errors(self, *, limited: bool = False) -> Iterator[None]:
        name = f"the store of view {self.spec.view!r} in Postgres"
        try:
            yield
        except _FULL as error:
            raise StoreFullError(
                f"no room for {name}: {_text(error)}. The cut before is served; free some space, and it goes on by "
                "itself"
            ) from error
        except psycopg.errors.QueryCanceled as error:
            if not limited:  # by an administrator, or a timeout of the server
                raise StoreUnavailableError(f"{name}: {_text(error)}") from error
            raise QuestionTooLargeError(
                f"the question took longer than {QUESTION_LIMIT_MS // 1000} s: ask for a smaller range of keys"
            ) from error
        except (psycopg.errors.UndefinedTable, psycopg.errors.DataCorrupted) as error:
            raise StoreBrokenError(
                f"{name} is damaged or gone: {_text(error)}. Drop schema {self.schema}, and it is made again"
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreBrokenError(f"{name}: {_text(error)}. Give the host's role this right") from error
        # ProgramLimitExceeded: a limit of Postgres, such as the size of a key in an index. A retry does not help.
        except (psycopg.DataError, psycopg.errors.ProgramLimitExceeded) as error:
            raise UsageError(f"{name} cannot take this: {_text(error)}") from error
        except psycopg.Error as error:
            raise StoreUnavailableError(f"{name}: {_text(error)}") from error

    def _begin_cut(self, connection: psycopg.Connection[Any], number: int, anew: bool) -> None:
        connection.execute(_BATCH_TABLES.encode())

    def _write(self, connection: psycopg.Connection[Any], number: int, prepared: Prepared, anew: bool) -> None:
        with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            copy.set_types(_COPY_TYPES)
            for place, digest, columns, value, words in prepared.upserts:
                copy.write_row((place, digest, columns, value, words if self.spec.search else None))
            for place in prepared.deletes:
                copy.write_row((place, None, None, None, None))
        for statement in _MOVES:
            connection.execute(statement.encode(), {"cut": number})
        if anew:
            connection.execute(b"INSERT INTO met SELECT key FROM batch WHERE value IS NOT NULL ON CONFLICT DO NOTHING")
        connection.execute(b"TRUNCATE batch")

    def _delete_unmet(self, connection: psycopg.Connection[Any], number: int) -> None:
        for statement in _UNMET:
            connection.execute(statement.encode(), {"cut": number})

    def _delete_history(self, connection: psycopg.Connection[Any], changes: Sequence[tuple[int, bytes]]) -> None:
        if changes:
            cuts_and_keys = [list(column) for column in zip(*changes, strict=True)]
            connection.execute(_PRUNE_HISTORY, cuts_and_keys)
            connection.execute(_PRUNE_CHANGES, cuts_and_keys)

    def drop(self) -> None:
        with self._transaction() as connection:
            connection.execute(f"SET LOCAL lock_timeout = {DROP_WAIT_MS}".encode())
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self.schema)))
        self.close()

    def _compared(self, value: Any, sign: str | None, text: str, path: tuple[str | int, ...]) -> tuple[str, list[Any]]:
        json = f"{_READABLE.replace('TEXT', text)}::json"
        kind, item, at = f"json_typeof({json} #> ?)", f"({json} #>> ?)", [str(step) for step in path]
        if value is None:
            return f"coalesce({kind}, 'null') = 'null'", [at]
        if isinstance(value, str):
            name, compared = "string", f"starts_with({item}, ?)" if sign is None else f'{item} COLLATE "C" {sign} ?'
        elif isinstance(value, bool):
            name, compared, value = "boolean", f"{item} = ?", "true" if value else "false"
        else:
            name, compared, value = "number", f"{item}::numeric {sign} ?::numeric", repr(value)
        # CASE: Postgres evaluates the operands of AND in any order, and only numbers can be cast.
        return f"CASE WHEN {kind} = '{name}' THEN {compared} ELSE false END", [at, at, value]

    def _has_words(self, words: Sequence[SearchWord]) -> tuple[str, list[Any]]:
        # Words are letters and digits, so that the quotes hold.
        return "words @@ ?::tsquery", [
            " & ".join(f"'{word}'" + (":*" if is_prefix else "") for word, is_prefix in words)
        ]


_HEX = "[0-9a-fA-F]"
_PAIRS = rf"\\u([dD][89abAB]{_HEX}{_HEX})\\u([dD][c-fC-F]{_HEX}{_HEX})"
_HALF = rf"\\u[dD][89a-fA-F]{_HEX}{_HEX}"
_READABLE = (
    r"(CASE WHEN strpos(TEXT, E'\\u') = 0 THEN TEXT WHEN TEXT !~ E'\\\\u(0000|[dD][89a-fA-F])' THEN TEXT ELSE "
    r"replace(replace(regexp_replace(regexp_replace("
    r"replace(replace(TEXT, E'\\\\', E'\x01'), E'\\u0000', E'\\u0001'), "
    rf"'{_PAIRS}', E'\x02\\1\x02\\2', 'g'), '{_HALF}', E'\\\\ufffd', 'g'), "
    r"E'\x02', E'\\u'), E'\x01', E'\\\\') END)"
)
"""JSON that Postgres can read. It refuses the whole text if a string in it has the character NUL or half of a surrogate
pair. \\x01 stands for an escaped backslash meanwhile, and \\x02 for the backslash of a whole pair: JSON has no control
characters."""


def schema_of(spec: VersionSpec) -> str:
    """`<view>_v<n>`. Of a name that is too long for Postgres, its beginning and a hash."""
    end = f"_v{spec.version}"
    if len(spec.view) + len(end) > LONGEST_NAME:
        end = f"_{blake2b(spec.view.encode(), digest_size=6).hexdigest()}{end}"
    return spec.view[: LONGEST_NAME - len(end)] + end


def _one(cursor: psycopg.Cursor[Any]) -> Any:
    row = cursor.fetchone()
    assert row is not None
    return row


def _text(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]
