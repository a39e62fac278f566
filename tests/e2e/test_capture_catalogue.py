"""What a capture asks of the catalogue: of many tables, of tables that come and go meanwhile, of types of extensions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.capturing import Connection, dsn_of
from support.postgres import VERSION, Postgres

from suiro.connect import CaptureOptions
from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.server.publication import Table, published_tables

OPTIONS = CaptureOptions(dsn="", bootstrap_servers="", registry="", topic_prefix="x", publication="p")


@pytest.fixture
def database(connection: Connection, postgres: Postgres, prefix: str) -> Iterator[Database]:
    with Database(dsn_of(postgres, prefix)) as made:
        yield made


def looked(database: Database) -> list[Table]:
    return published_tables(database, OPTIONS, VERSION * 10_000)


def test_many_tables_take_no_more_statements_than_one(
    database: Database, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at them again and again while the stream waits."""
    asked = Database.rows
    statements = 0

    def counted(self: Database, *arguments: object, **what: object) -> object:
        nonlocal statements
        statements += 1
        return asked(self, *arguments, **what)  # type: ignore[arg-type]

    monkeypatch.setattr(Database, "rows", counted)
    connection.execute("create publication p for all tables; create table t_0 (k int primary key)")
    assert [table.name for table in looked(database)] == ["t_0"]
    of_one, statements = statements, 0
    for number in range(1, 40):
        connection.execute(f"create table t_{number:02} (v text, k int primary key)".encode())
    tables = looked(database)
    assert (len(tables), statements) == (40, of_one)
    assert {(table.key, tuple(column.name for column in table.columns)) for table in tables[1:]} == {
        (("k",), ("v", "k"))
    }


@pytest.mark.skipif(VERSION < 15, reason="before, the server is not asked what of a table is published")
@pytest.mark.parametrize("how", ["alter publication p drop table t", "drop table if exists t"])
def test_a_table_that_is_taken_out_while_it_is_looked_at_is_left(
    database: Database, connection: Connection, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    connection.execute("create table t (k int primary key); create table u (k int primary key)")
    connection.execute("create publication p for table t, u")
    asked = Database.rows

    def then_changes(self: Database, sql: str, *arguments: object, **what: object) -> object:
        found = asked(self, sql, *arguments, **what)  # type: ignore[arg-type]
        if "pg_publication_tables" in sql:
            connection.execute(how.encode())
        return found

    monkeypatch.setattr(Database, "rows", then_changes)
    assert [table.name for table in looked(database)] == ["u"]
