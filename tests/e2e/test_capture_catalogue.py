"""What a capture asks of the catalogue: of many tables, of tables that come and go, of types of extensions."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from support.capturing import CaptureScene, Connection, dsn_of, make_slot, records
from support.postgres import VERSION, Postgres

from suiro.connect import CaptureOptions
from suiro.connect.postgres.encoding.copy_binary import rows_of
from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.server.publication import Table, published_tables, read_table
from suiro.connect.postgres.snapshot import ranges
from suiro.connect.postgres.snapshot.ranges import Range, RangeReader, read_keys

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


def test_a_table_of_large_rows_that_loses_its_key_is_read_as_a_whole(
    database: Database, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of rows that fit is remembered. By it, rows with a null in their key were in none of the parts."""
    monkeypatch.setattr(ranges, "RANGE_BYTES", 1 << 19)
    connection.execute("create table t (k int primary key, v text); create publication p for table t")
    connection.execute("insert into t select g, repeat('x', 10000) from generate_series(1, 200) g")
    reader = RangeReader()
    (table,) = looked(database)
    with database.snapshot():
        assert reader.read(database, table, "k", Range())[1] == Range()
        assert reader.read(database, table, "k, v", Range())[1].until is not None
    connection.execute("alter table t drop constraint t_pkey, alter k drop not null, replica identity full")
    connection.execute("update t set k = null")
    (table,) = looked(database)
    with database.snapshot():
        data, read = reader.read(database, table, "k", Range())
    assert read == Range()
    assert len(rows_of(data, 1)) == 200


def test_a_table_stays_locked_between_two_of_its_ranges(database: Database, connection: Connection) -> None:
    """Without a key these are places in its file: VACUUM FULL would move rows from the second one to the first."""
    connection.execute("create table t (v int); alter table t replica identity full")
    connection.execute("insert into t select generate_series(1, 1000); create publication p for table t")
    (table,) = looked(database)
    with database.snapshot():
        RangeReader().read(database, table, "v", Range(blocks=(0, 1)))
        with pytest.raises(psycopg.errors.LockNotAvailable), connection.transaction():
            connection.execute("lock table t in access exclusive mode nowait")


OPERATORS = {"<": "lt", "<=": "le", "=": "eq", ">=": "ge", ">": "gt"}
WITHOUT_CASE = (
    """
create schema types;
create type types.folded;
create function types.folded_in(cstring) returns types.folded language internal immutable strict as 'textin';
create function types.folded_out(types.folded) returns cstring language internal immutable strict as 'textout';
create type types.folded (input = types.folded_in, output = types.folded_out, collatable = true);
create cast (types.folded as text) without function;
create cast (text as types.folded) without function as assignment;
create function types.folded_cmp(types.folded, types.folded) returns int language sql immutable strict as
    'select bttextcmp(lower($1::text) collate "C", lower($2::text) collate "C")';
"""
    + "".join(
        f"create function types.folded_{name}(types.folded, types.folded) returns bool language sql immutable strict as"
        f" 'select types.folded_cmp($1, $2) {operator} 0';"
        f"create operator types.{operator} (leftarg = types.folded, rightarg = types.folded, function ="
        f" types.folded_{name});"
        for operator, name in OPERATORS.items()
    )
    + (
        "create operator class types.folded_ops default for type types.folded using btree as operator 1 types.<,"
        " operator 2 types.<=, operator 3 types.=, operator 4 types.>=, operator 5 types.>, function 1"
        " types.folded_cmp(types.folded, types.folded);"
    )
)
"""As the extension `citext`, in a schema that is in nobody's search path."""


@pytest.mark.parametrize("key", ["a", "a, n", "n, a"])
def test_a_key_whose_type_sorts_by_operators_of_its_own(scene: CaptureScene, connection: Connection, key: str) -> None:
    """They were looked for in the search path, where there are none, or those of a type that a cast leads to."""
    connection.execute(WITHOUT_CASE.encode())
    connection.execute(
        f'create table t (n int, a types.folded collate "C", v int, primary key ({key}));'
        "insert into t select g % 7, case g % 2 when 0 then 'a' else 'B' end || lpad(g::text, 4, '0'), 0 from"
        " generate_series(1, 1000) g".encode()
    )
    make_slot(connection, scene)
    capture = scene.started(tables="t", chunk_rows=50)
    rows = "(select n, a::text, v from t) printed"
    scene.wait_same(connection, "t", rows, sorted(key.split(", "), reverse=True))
    assert capture.stop() == 0


def test_functions_of_others_are_not_called(scene: CaptureScene, connection: Connection) -> None:
    """Who may create one in `public` would run it as the capture's role, which is a superuser perhaps."""
    connection.execute(
        "create function concat(inet) returns text language plpgsql as $$begin raise exception 'called'; end$$;"
        "create function num_nulls(inet) returns int language plpgsql as $$begin raise exception 'called'; end$$;"
        "create table t (k int primary key, a inet);"
        "insert into t select g, '10.0.0.1' from generate_series(1, 10) g"
    )
    capture = scene.started(tables="t")
    scene.wait_same(connection, "t", "(select k, host(a) as a from t) printed", ["k"])
    assert capture.stop() == 0


FAILS = "language plpgsql immutable as $$begin raise exception 'called'; end$$"
USERS_TYPES = f"""
create type mood as enum ('calm', 'wild'); create type pair as (x int, y int); create domain small as int;
create function printed(mood) returns text {FAILS}; create cast (mood as text) with function printed(mood);
create function printed(pair) returns text {FAILS}; create cast (pair as text) with function printed(pair);
create function printed(pair[]) returns text {FAILS}; create cast (pair[] as text) with function printed(pair[]);
create table t (k small, m mood, p pair, several pair[], primary key (m, k));
insert into t select g, 'wild', row(g, g)::pair, array[row(g, null)::pair] from generate_series(1, 300) g;
create function checked(int) returns bool {FAILS};
alter domain small add check (checked(value)) not valid
"""


def test_neither_casts_nor_constraints_of_types_of_others_are_called(
    scene: CaptureScene, connection: Connection
) -> None:
    """An owner of a table may define them. Rows of a snapshot would have other texts than their changes, and a bound
    that no longer fits a domain would begin the table again and again."""
    connection.execute(USERS_TYPES.encode())
    make_slot(connection, scene)
    capture = scene.started(tables="t", chunk_rows=50)
    folded = scene.topics.fold(f"{scene.prefix}.public.t")
    assert sorted(row["k"] for row in folded.values()) == list(range(1, 301))
    assert all(
        row
        == {
            "k": row["k"],
            "m": "wild",
            "p": {"x": row["k"], "y": row["k"]},
            "several": [{"x": row["k"], "y": None}],
        }
        for row in folded.values()
    )
    assert capture.stop() == 0


def test_constraints_of_domains_within_the_types_of_a_key_are_not_called(
    scene: CaptureScene, connection: Connection
) -> None:
    """The owner of a domain would have a function run by the capture's role, and a bound that no longer fits would
    begin the table again and again. Such a table is read as a whole, and rows of it by their printed keys."""
    connection.execute(
        f"""
        create domain small as int; create type held as (x small); create type span as range (subtype = small);
        create table t (a small[], h held, r span, v text, primary key (a, h, r));
        insert into t select array[g::small], row(g::small)::held, span(g::small, (g + 1)::small), g
            from generate_series(1, 300) g;
        create function checked(int) returns bool {FAILS};
        alter domain small add check (checked(value)) not valid
        """.encode()
    )
    make_slot(connection, scene)
    capture = scene.started(tables="t", chunk_rows=50)
    assert sorted(int(scene.topics.decoded(one["value"])["v"]) for one in records(scene)) == list(range(1, 301))
    assert capture.stop() == 0
    with Database(scene.options["dsn"]) as database:
        table = read_table(database, f"suiro_{scene.prefix}", "public", "t", VERSION * 10_000)
        data, done = read_keys(database, table, "v", [("{7}", "(7)", "[7,8)"), ("{0}", "(0)", "[0,1)")])
    assert (done, len(rows_of(data, 1)), rows_of(data, 1)[0]) == (2, 1, [b"7"])


def test_options_of_the_dsn_hold_beside_those_of_the_capture(
    connection: Connection, postgres: Postgres, prefix: str
) -> None:
    connection.execute(f"create role {prefix}".encode())
    try:
        with Database(f"{dsn_of(postgres, prefix)}&options=-c%20role%3D{prefix}%20-c%20datestyle%3DGerman") as made:
            found = made.row("select current_user, current_setting('datestyle')", what="ask")
        assert found is not None
        assert (found[0], found[1][:3]) == (prefix, "ISO")
    finally:
        connection.execute(f"drop role {prefix}".encode())
