"""Rows of a real Postgres as capture gets them: messages of a slot, blocks of COPY, and what the catalogue says."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import fastavro
import numpy as np
import psycopg

from suiro.connect.postgres.encoding.copy_binary import copy_columns
from suiro.connect.postgres.encoding.encoded_rows import EncodedRows
from suiro.connect.postgres.encoding.pgoutput import Messages, join, parse
from suiro.connect.postgres.encoding.schemas import RELATION_QUERY, Relation
from suiro.connect.postgres.encoding.types import SESSION_SETTINGS, TYPES_QUERY, Column, Rules, types_of

Connection = psycopg.Connection[Any]


def connect(dsn: str) -> Connection:
    options = " ".join(f"-c {name}={value}" for name, value in SESSION_SETTINGS.items())
    return psycopg.connect(dsn, options=options, autocommit=True)


class Slot:
    """A slot over all tables, read by SQL."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    def messages(self) -> list[bytes]:
        rows = self._connection.execute(
            "select data from pg_logical_slot_get_binary_changes(%s, null, null,"
            " 'proto_version', '1', 'messages', 'on', 'publication_names', %s)",
            [self._name, self._name],
        )
        return [row[0] for row in rows]


@contextmanager
def slot_over_all(connection: Connection, name: str) -> Iterator[Slot]:
    connection.execute(f"create publication {name} for all tables")
    connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    try:
        yield Slot(connection, name)
    finally:
        connection.execute("select pg_drop_replication_slot(%s)", [name])
        connection.execute(f"drop publication {name}")


def facts(connection: Connection, table: str) -> tuple[tuple[Any, ...], Any]:
    """(the table's row of RELATION_QUERY, the types of its columns)."""
    relation = relation_of(connection, table)
    row = connection.execute(RELATION_QUERY, {"relation": relation.oid}).fetchone()
    assert row is not None
    return row, relation.types


def relation_of(connection: Connection, table: str) -> Relation:
    """The table as the catalogue has it now, without generated columns. Its key is the primary key, or every column."""
    rows = connection.execute(
        "select attrelid::int8, attname, atttypid::int8, atttypmod, attndims, exists (select from pg_index where"
        " indrelid = attrelid and indisprimary and attnum = any(indkey)) from pg_attribute where attrelid ="
        " %s::regclass and attnum > 0 and not attisdropped and attgenerated = '' order by attnum",
        [table],
    ).fetchall()
    columns = tuple(
        Column(name=name, type=type_oid, typmod=typmod, dimensions=dimensions)
        for _, name, type_oid, typmod, dimensions, _ in rows
    )
    primary = tuple(place for place, row in enumerate(rows) if row[-1])
    oids = [column.type for column in columns]
    return Relation(
        oid=rows[0][0],
        schema="public",
        name=table,
        columns=columns,
        key=primary or tuple(range(len(columns))),
        nullable_key=not primary,
        types=types_of(connection.execute(TYPES_QUERY, {"oids": oids}).fetchall()),
    )


def snapshot(connection: Connection, table: str, relation: Relation, rules: Rules) -> bytes:
    statement = f"copy (select {copy_columns(relation, rules)} from {table} order by 1) to stdout (format binary)"
    with connection.cursor().copy(statement.encode()) as copy:
        return b"".join(bytes(block) for block in copy)


def parsed_messages(messages: Sequence[bytes]) -> Messages:
    return parse(join(messages, [0] * len(messages)))


def changes_of(messages: list[bytes], relation_oid: int) -> tuple[Messages, Any]:
    parsed = parsed_messages(messages)
    return parsed, np.flatnonzero(np.isin(parsed.kind, list(b"IUD")) & (parsed.relation == relation_oid))


def decoded(encoded: EncodedRows, schema: dict[str, Any]) -> list[Any]:
    """The values, read by fastavro; None for a record without one."""
    parsed = fastavro.parse_schema(without_logical_types(schema))
    out: list[Any] = []
    for record in range(len(encoded)):
        value = encoded.value(record)
        if value is None:
            out.append(None)
            continue
        stream = io.BytesIO(value[5:])
        out.append(fastavro.schemaless_reader(stream, parsed, None))
        assert stream.read() == b""
    return out


def without_logical_types(schema: Any) -> Any:
    """Only decimals stay: datetime knows neither infinity nor years beyond 9999."""
    if isinstance(schema, list):
        return [without_logical_types(part) for part in schema]
    if isinstance(schema, dict):
        return {
            name: without_logical_types(part)
            for name, part in schema.items()
            if name != "logicalType" or part == "decimal"
        }
    return schema
