"""Sink `postgres`: each record is a row of a table, by its key; a null value deletes the row. Exactly once.

    [sink.airports]
    kind = "postgres"
    dsn = "postgresql://user@host/database"
    table = "public.airports"
    key = ["faa"]
    topics = ["airports"]

Rows and the offsets behind them are written in one transaction. The table `suiro_connect_offsets` has one row of
offsets for each partition, which is locked and compared before anything is written. So a batch is written once even
after a crash, and a second process that runs the same connector is refused.

The user creates the table. A record sets the columns that it has fields for, like one INSERT ... ON CONFLICT DO UPDATE
for each record; Postgres converts the JSON values to the types of the columns. A text that a capture wrote for a
column of type json or jsonb is JSON again in such a column. The key's columns come from the value or, for a null value,
from the record's key: a JSON object, or the value of the only column.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from suiro.connect.connectors import About, SinkBatch, SinkRecord, check_expected
from suiro.connect.datasets import postgres_table
from suiro.connect.values import json_text, plain_json
from suiro.errors import TransientError, UsageError
from suiro.foundation.nesting import parse_json
from suiro.foundation.postgres_network import network_parameters
from suiro.foundation.settings import SettingError, read_settings, require_one_of
from suiro.foundation.types import TopicPartition
from suiro.registry.codecs.avro_infinity import infinity_text
from suiro.telemetry import Dataset

OFFSETS_TABLE = "suiro_connect_offsets"

# Statements name functions with their schema. A function of another schema whose arguments fit better would be called
# instead, and would run as the sink's role, whoever created it.

# Otherwise deferred constraints would be checked at the commit, when it is too late to reject a record.
_CHECK = "SET CONSTRAINTS ALL IMMEDIATE"

# Limits of the server or of the role. A batch that exceeds one would exceed it each time that it is repeated. A wait
# for a lock may be shorter the next time, so `lock_timeout` holds, and `statement_timeout` limits such a wait.
_LIMIT_OF_LOCKS = (
    "SELECT pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('statement_timeout'), true) "
    "WHERE pg_catalog.current_setting('lock_timeout') = '0'"
)
_NO_LIMITS = {"statement_timeout": 0, "idle_in_transaction_session_timeout": 0, "transaction_timeout": 170000}
"""By name, the version of Postgres that has it."""
_SERVER_NETWORK = {
    "tcp_keepalives_idle": ("keepalives_idle", 0),
    "tcp_keepalives_interval": ("keepalives_interval", 0),
    "tcp_keepalives_count": ("keepalives_count", 0),
    "tcp_user_timeout": ("tcp_user_timeout", 120000),
}
"""By name, the parameter of libpq with the same value, and the version of Postgres that has it."""

# Errors that one record can cause. A CardinalityViolation: two records of a statement write a key differently (1, 1.0).
_OF_A_RECORD = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.RaiseException,
    psycopg.errors.CardinalityViolation,
    psycopg.errors.WithCheckOptionViolation,
    psycopg.errors.ProgramLimitExceeded,  # a key too long for the index
    RecursionError,  # of a value nested too deeply to be written as JSON
)
_CHECKS_ROWS = "ExecWithCheckOptions"
"""The function of Postgres that refuses a row by row-level security. The error is that of a missing right."""

_JSON_TYPES = (114, 3802)
"""The oids of json and jsonb."""
_PLACE = secrets.token_hex(16)
"""The beginning of what stands for a `_JsonText` until the JSON around it is written. No value can have it."""

_Good = tuple[SinkRecord, dict[str, Any], dict[str, Any] | None]
"""A record, its key, and its columns; None: it deletes the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    dsn: str
    table: str
    key: tuple[str, ...]
    offsets_schema: str | None = None  # of the table of offsets; by default the table's
    unknown_fields: str = "fail"  # or "ignore": fields of a record that the table has no column for

    def __post_init__(self) -> None:
        if not self.key:
            raise SettingError("key", "names no column")
        require_one_of("unknown_fields", self.unknown_fields, ("fail", "ignore"))
        try:
            psycopg.conninfo.conninfo_to_dict(self.dsn)
        except psycopg.Error as error:
            raise SettingError("dsn", f"is no connection string: {str(error).strip()}") from None


class _Refused(Exception):
    """A record is not for this table, or Postgres refuses it."""


class PostgresSink:
    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._settings = read_settings(PostgresSettings, settings)
        self._name = about.name
        self._connection: psycopg.Connection[Any] | None = None
        self._types: dict[str, sql.SQL] = {}
        self._json_columns: dict[str, bool] = {}  # by name, whether it is an array
        schema, found, table = self._settings.table.rpartition(".")
        self._table = _named(schema, table) if found else _named(table)
        self._offsets_schema = self._settings.offsets_schema or schema or None
        self._offsets = _named(*filter(None, (self._offsets_schema, OFFSETS_TABLE)))

    def datasets(self) -> Sequence[Dataset]:
        settings = self._settings
        connection = psycopg.conninfo.conninfo_to_dict(settings.dsn)
        return [postgres_table(connection, settings.table, self._types)]

    def open(self) -> None:
        try:
            given = psycopg.conninfo.conninfo_to_dict(self._settings.dsn)
            network = network_parameters(given)
            self._connection = psycopg.connect(
                self._settings.dsn,
                # Through a pooler, the name of a prepared statement may belong to another client.
                prepare_threshold=None,
                application_name=f"suiro-connect-{self._name}",
                **network,
            )
            with self._transaction():
                self._connected.execute(self._server_network(given | network))
                self._make_offsets_table()
                self._read_columns()
        except psycopg.OperationalError as error:
            raise TransientError(f"{self._name}: cannot reach Postgres: {str(error).strip()}") from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        with self._transaction():
            return self._stored()  # waits for the transaction of an earlier process

    def put(self, batch: SinkBatch) -> None:
        with self._transaction():
            check_expected(batch.first_offsets, self._stored(), f"{self._name}: Postgres")
            self._write(batch)
            self._store(batch)
            batch.settle()  # the dead letters first: they may be written twice, but are never lost

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        version = self._connected.info.server_version
        no_limits = (f"SET LOCAL {name} = 0" for name, since in _NO_LIMITS.items() if version >= since)
        try:
            with self._connected.transaction():
                self._connected.execute("; ".join((_LIMIT_OF_LOCKS, *no_limits)).encode())
                yield
        except psycopg.OperationalError as error:
            raise TransientError(f"{self._name}: lost Postgres, or it cannot go on: {_first_line(error)}") from error
        except psycopg.Error as error:
            raise UsageError(f"{self._name}: Postgres says: {_first_line(error)}") from error

    def _server_network(self, network: Mapping[str, Any]) -> bytes:
        """Returns statements with which the server notices within the same time as this side that the other one is
        gone. Otherwise the locks of a machine that died would last for hours."""
        version = self._connected.info.server_version
        return "; ".join(
            f"SET {name} = {max(0, int(network[of_libpq]))}"
            for name, (of_libpq, since) in _SERVER_NETWORK.items()
            if version >= since
        ).encode()

    def _write(self, batch: SinkBatch) -> None:
        good: list[_Good] = []
        self._read_columns()  # the table may have been altered
        for record in batch.records:
            try:
                good.append((record, *self._row(record)))
            except (_Refused, RecursionError) as error:
                batch.reject(record, str(error))
        try:
            with self._savepoint():
                self._apply([(key, fields) for _, key, fields in good])
                self._connected.execute(_CHECK)
            return
        except _Refused:
            pass  # one record at a time, to find those that Postgres refuses
        try:
            with self._savepoint():
                refused = self._write_each(good)
                self._connected.execute(_CHECK)  # a record may need a later one of the batch
        except _Refused:
            refused = self._write_each(good, checks=True)
        for record, why in refused:
            batch.reject(record, f"Postgres rejects it: {why}")

    def _write_each(self, good: Sequence[_Good], *, checks: bool = False) -> list[tuple[SinkRecord, str]]:
        """Writes the records one by one. Returns those that Postgres refuses; with `checks`, also those that deferred
        constraints refuse."""
        refused = []
        for record, key, fields in good:
            try:
                with self._savepoint():
                    self._apply([(key, fields)])
                    if checks:
                        self._connected.execute(_CHECK)
            except _Refused as error:
                refused.append((record, str(error)))
        return refused

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        """Raises `_Refused` for an error that one record can cause, after a rollback to here."""
        try:
            with self._connected.transaction():
                yield
        except (psycopg.Error, RecursionError) as error:
            if not _is_of_a_record(error):
                raise
            raise _Refused(_first_line(error)) from error

    def _row(self, record: SinkRecord) -> tuple[dict[str, Any], dict[str, Any] | None]:
        names = self._settings.key
        value = record.value
        if value is None:
            return self._with_json(record, self._key_of(record)), None
        if not isinstance(value, dict):
            raise _Refused(f"the value is {type(value).__name__}, not an object")
        value = _renamed(value, record.names)
        unknown = value.keys() - self._types.keys()
        if unknown:
            if self._settings.unknown_fields == "fail":
                raise _Refused(
                    f"table {self._settings.table} has no column for {', '.join(sorted(unknown))}; add it, or set "
                    'unknown_fields = "ignore"'
                )
            value = {name: item for name, item in value.items() if name not in unknown}
        if any(value.get(name) is None for name in names):
            value = value | self._key_of(record)
        value = self._with_json(record, value)
        return {name: value[name] for name in names}, value

    def _with_json(self, record: SinkRecord, value: dict[str, Any]) -> dict[str, Any]:
        """Returns the value with the JSON that a capture wrote as text. Columns of JSON get texts, so that JSON's null
        is one."""
        made = {
            name: _with_texts(value[name], texts)
            for name, texts in record.json_texts.items()
            if name in value and texts is not True
        }
        for name in self._json_columns.keys() & value.keys():
            item, is_text = made.get(name, value[name]), record.json_texts.get(name) is True
            if not self._json_columns[name]:
                made[name] = item if item is None or is_text else _json(item)
            elif is_text and isinstance(item, list):
                made[name] = _array_text(item)
        return value | made if made else value

    def _rows_of(self, names: Iterable[str]) -> sql.Composable:
        """Returns the rows `k` of a statement's parameter, with these columns. Only these: a domain that is NOT NULL
        refuses those that a record does not have."""
        columns = sql.SQL(", ").join(sql.SQL("{} {}").format(_named(name), self._types[name]) for name in names)
        return sql.SQL("pg_catalog.jsonb_to_recordset(%s::jsonb) k ({})").format(columns)

    def _given(self, name: str, json_type: str = "json") -> sql.Composable:
        """Returns what a column gets of a row `k`. Postgres converts json to the type of the column."""
        column = sql.SQL("k.{}").format(_named(name))
        if self._json_columns.get(name, True):
            return column
        return sql.SQL("{}::pg_catalog.{}").format(column, sql.Identifier(json_type))

    def _key_of(self, record: SinkRecord) -> dict[str, Any]:
        names, key = self._settings.key, record.key
        if isinstance(key, str) and key.startswith("{"):
            try:
                key = parse_json(key, allow_half_pairs=False)
            except ValueError:
                pass
        if isinstance(key, dict):
            key = _renamed(key, record.names)
            if any(key.get(name) is None for name in names):
                raise _Refused(f"the key has no {', '.join(names)}")
            return {name: key[name] for name in names}
        if key is None or len(names) > 1:
            raise _Refused(f"neither value nor key has {', '.join(names)}")
        return {names[0]: key}

    def _apply(self, changes: Iterable[tuple[dict[str, Any], dict[str, Any] | None]]) -> None:
        """Has the effect of one record after another. Consecutive upserts become one statement, and so do consecutive
        deletions. They do not change places, because only Postgres knows which keys are equal."""
        deletes: list[dict[str, Any]] = []
        upserts: dict[str, dict[str, Any]] = {}
        for key, fields in changes:
            if fields is None:
                self._upsert_all(upserts)
                deletes.append(key)
            else:
                self._delete(deletes)
                place = _json(list(key.values()))
                upserts[place] = upserts.get(place, {}) | fields
        self._delete(deletes)
        self._upsert_all(upserts)

    def _upsert_all(self, upserts: dict[str, dict[str, Any]]) -> None:
        by_names: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for fields in upserts.values():
            by_names.setdefault(tuple(sorted(fields)), []).append(fields)
        if len(by_names) > 1:
            self._check_distinct(list(upserts.values()))
        for names, found in by_names.items():
            self._upsert(names, found)
        upserts.clear()

    def _check_distinct(self, rows: list[dict[str, Any]]) -> None:
        """Raises `CardinalityViolation`, as Postgres does within one statement, if rows of several statements have the
        same key."""
        key = sql.SQL(", ").join(self._given(name, "jsonb") for name in self._settings.key)
        statement = sql.SQL("SELECT count(*) = pg_catalog.count(DISTINCT ({key})) FROM {rows}").format(
            key=key, rows=self._rows_of(self._settings.key)
        )
        keys = [{name: row[name] for name in self._settings.key} for row in rows]
        if self._connected.execute(statement, (_json(keys),)).fetchone() != (True,):
            raise psycopg.errors.CardinalityViolation("two records have the same key, written differently")

    def _delete(self, keys: list[dict[str, Any]]) -> None:
        if not keys:
            return
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{} = {}").format(_named(name), self._given(name, "jsonb")) for name in self._settings.key
        )
        statement = sql.SQL("DELETE FROM {table} t USING {rows} WHERE {same}").format(
            table=self._table, rows=self._rows_of(self._settings.key), same=same
        )
        self._connected.execute(statement, (_json(keys),))
        keys.clear()

    def _upsert(self, names: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
        columns = sql.SQL(", ").join(map(_named, names))
        others = [name for name in names if name not in self._settings.key]
        action: sql.Composable = sql.SQL("NOTHING")
        if others:
            sets = (sql.SQL("{0} = excluded.{0}").format(_named(name)) for name in others)
            action = sql.SQL("UPDATE SET ") + sql.SQL(", ").join(sets)
        statement = sql.SQL(
            "INSERT INTO {table} ({columns}) SELECT {given} FROM {rows} ON CONFLICT ({key}) DO {action}"
        ).format(
            table=self._table,
            columns=columns,
            rows=self._rows_of(names),
            given=sql.SQL(", ").join(map(self._given, names)),
            key=sql.SQL(", ").join(map(_named, self._settings.key)),
            action=action,
        )
        self._connected.execute(statement, (_json(rows),))

    def _make_offsets_table(self) -> None:
        # Two may start at once.
        self._connected.execute("SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('suiro_connect_offsets'))")
        statement = sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (connector text, topic text, partition int, next_offset bigint NOT NULL, "
            "written_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (connector, topic, partition))"
        ).format(self._offsets)
        try:
            with self._connected.transaction():
                self._connected.execute(statement, ())
        except psycopg.errors.InsufficientPrivilege:
            # Postgres checks this first, also if the table exists. One elsewhere in the search path is somebody else's.
            exists = (
                "SELECT pg_catalog.to_regclass(pg_catalog.format('%%I.%%I', coalesce(%s, pg_catalog.current_schema()), "
                "%s::text)) IS NOT NULL"
            )
            if self._connected.execute(exists, (self._offsets_schema, OFFSETS_TABLE)).fetchone() != (True,):
                raise

    def _stored(self) -> dict[TopicPartition, int]:
        """Returns the stored offsets, and locks them until the transaction ends."""
        statement = sql.SQL("SELECT topic, partition, next_offset FROM {} WHERE connector = %s FOR UPDATE")
        rows = self._connected.execute(statement.format(self._offsets), (self._name,)).fetchall()
        return {(topic, partition): offset for topic, partition, offset in rows}

    def _store(self, batch: SinkBatch) -> None:
        """Stores the offsets. Two processes may both have found no offset to lock: the second one is refused here."""
        statement = sql.SQL(
            "INSERT INTO {} AS o (connector, topic, partition, next_offset) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (connector, topic, partition) DO UPDATE SET next_offset = excluded.next_offset, "
            "written_at = now() WHERE o.next_offset = %s"
        ).format(self._offsets)
        for target, offset in batch.next_offsets.items():
            stored = (self._name, *target, offset, batch.first_offsets[target])
            if not self._connected.execute(statement, stored).rowcount:
                raise TransientError(
                    f"{self._name}: Postgres has got an offset of {target[0]}-{target[1]} meanwhile: another process "
                    "runs the same connector. A restart goes on from what is stored"
                )

    def _read_columns(self) -> None:
        rows = self._connected.execute(
            "WITH RECURSIVE below (name, sql, type, is_array) AS (SELECT attname, "
            "pg_catalog.format_type(atttypid, atttypmod), atttypid, false FROM pg_attribute "
            "WHERE attrelid = pg_catalog.to_regclass(%s)::oid AND attnum > 0 AND NOT attisdropped "
            "AND attgenerated = '' UNION ALL SELECT name, sql, "
            "CASE typtype WHEN 'd' THEN typbasetype ELSE typelem END, is_array OR typtype <> 'd' "
            "FROM below JOIN pg_type t ON t.oid = type "
            "WHERE typtype = 'd' OR (typelem <> '0' AND typlen = -1)) SELECT * FROM below",
            (self._table.as_string(self._connected).replace("%%", "%"),),
        ).fetchall()
        if not rows:
            raise UsageError(f"{self._name}: there is no table {self._settings.table}; create it with its primary key")
        self._json_columns = {name: is_array for name, _, base, is_array in rows if base in _JSON_TYPES}
        self._types = {
            name: sql.SQL("pg_catalog.text" if self._json_columns.get(name) is False else kind.replace("%", "%%"))
            for name, kind, _, _ in rows
        }
        for name in self._settings.key:
            if name not in self._types:
                raise UsageError(f"{self._name}: table {self._settings.table} has no column {name!r}, which key names")

    @property
    def _connected(self) -> psycopg.Connection[Any]:
        assert self._connection is not None
        return self._connection


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _is_of_a_record(error: Exception) -> bool:
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return error.diag.source_function == _CHECKS_ROWS
    # A trigger may raise an error with a code of its own.
    is_own = type(error) is psycopg.DatabaseError and error.diag.sqlstate is not None
    return is_own or isinstance(error, _OF_A_RECORD)


def _named(*names: str) -> sql.Identifier:
    """Returns an identifier for a statement with parameters, in which % is doubled."""
    return sql.Identifier(*(name.replace("%", "%%") for name in names))


def _renamed(value: Any, names: Mapping[str, tuple[str, Any]]) -> Any:
    """Returns a value that a capture wrote, with the names of Postgres. `names`: see `Fields.names`."""
    if not names:
        return value
    if isinstance(value, list):
        return [_renamed(one, names) for one in value]
    if not isinstance(value, dict):
        return value
    found = ((*names.get(name, (name, {})), one) for name, one in value.items())
    return {column: _renamed(one, within) for column, within, one in found}


def _array_text(value: Any) -> str:
    """Returns an array of texts as Postgres writes it."""
    if isinstance(value, list):
        return f"{{{','.join(map(_array_text, value))}}}"
    if value is None:
        return "NULL"
    text = value if isinstance(value, str) else _json(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True, slots=True)
class _JsonText:
    """JSON within a value that is written as JSON."""

    text: str


def _with_texts(value: Any, texts: Any) -> Any:
    """Returns a value with the JSON of its texts. `texts`: see `Fields.json_texts`."""
    if isinstance(value, list):
        return [_with_texts(one, texts) for one in value]
    if isinstance(value, dict) and texts is not True:
        return value | {name: _with_texts(value[name], one) for name, one in texts.items() if name in value}
    if isinstance(value, str):
        try:
            json.loads(value, parse_int=str, parse_float=str)
        except ValueError:  # somebody else's text
            return value
        return _JsonText(value)
    return value


def _json(value: Any) -> str:
    texts: list[str] = []

    def default(one: Any) -> Any:
        if isinstance(one, _JsonText):
            texts.append(one.text)
            return f"{_PLACE}{len(texts) - 1}"
        return infinity_text(one) or plain_json(one)

    written = json_text(value, default=default)
    return re.sub(f'"{_PLACE}(\\d+)"', lambda found: texts[int(found[1])], written) if texts else written
