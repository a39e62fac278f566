"""What ALTER TABLE does to rows and no change tells: the table is read again, while it is read and afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

import psycopg
import pytest
from support.capturing import CaptureScene, Connection, dsn_of, killed
from support.postgres import VERSION, Postgres
from support.share import one_of
from support.waiting import wait_until

from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.server.publication import Table, read_table
from suiro.connect.postgres.snapshot.table_state import TableState
from suiro.registry import RegistryClient, Schema

ROWS = 500
INSERT = f"""
insert into t select g, repeat(md5(g::text), 80), repeat(md5((-g)::text), 80), g from generate_series(1, {ROWS}) g
"""
TABLES = {
    "plain": "create table t (k int primary key, a text, b text, n int);"
    "alter table t alter a set storage external, alter b set storage external",
    "partitioned": "create table t (k int primary key, a text, b text, n int) partition by range (k);"
    "create table t_1 partition of t for values from (0) to (200);"
    "create table t_2 partition of t for values from (200) to (2000) partition by range (k);"
    "create table t_3 partition of t_2 for values from (200) to (2000)",
}
ALTERATIONS = {
    "a constant default": "alter table t add c int default 7",
    "a rewrite": "alter table t add c text default gen_random_uuid()",
    "the same type": "alter table t alter n type int using n * 2",
    "another modifier": "alter table t alter a type varchar(9) using left(a, 5)",
    "dropped and added": "alter table t drop n; alter table t add n int",
    "names swapped": "alter table t rename a to c; alter table t rename b to a; alter table t rename c to b",
    "an expression": "alter table t alter e set expression as (n * 3)",
}


@pytest.mark.parametrize(("how", "table"), one_of(3, product(ALTERATIONS, TABLES)))
def test_rows_that_were_altered_are_read_again(
    scene: CaptureScene, connection: Connection, how: str, table: str
) -> None:
    connection.execute(f"{TABLES[table]};{INSERT}".encode())
    if how == "an expression":
        if VERSION < 18:
            pytest.skip("generated columns are published since Postgres 18")
        connection.execute("alter table t add e int generated always as (n * 2) stored")
    capture = scene.start(tables="t")
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    connection.execute(ALTERATIONS[how].encode())
    connection.execute("update t set k = 999 where k = 300")
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


@pytest.mark.skipif(VERSION < 15, reason="publications have row filters and column lists since Postgres 15")
def test_a_wider_publication_is_read(scene: CaptureScene, connection: Connection) -> None:
    """Columns and rows that were there before, and were not published."""
    connection.execute(f"{TABLES['plain']};{INSERT}".encode())
    connection.execute("create publication few for table t (k, a) where (k < 100)")
    capture = scene.start(publication="few")
    capture.ready()
    scene.wait_same(connection, "t", "(select k, a from t where k < 100) published", ["k"])
    connection.execute("alter publication few set table t (k, a, n) where (k < 100)")
    scene.wait_same(connection, "t", "(select k, a, n from t where k < 100) published", ["k"])
    connection.execute("alter publication few set table t (k, a, n) where (k > 50)")
    scene.wait_same(connection, "t", "(select k, a, n from t where k > 50) published", ["k"])
    assert capture.stop() == 0


@pytest.mark.parametrize(
    "how",
    [
        'alter table t alter a type text collate "POSIX"',  # which every server has; it may be any
        "alter table t drop constraint t_pkey; alter table t add primary key (n, a)",
    ],
    ids=["collation", "order of columns"],
)
def test_the_order_of_a_key_changes_while_the_table_is_read(
    scene: CaptureScene, connection: Connection, postgres: Postgres, how: str
) -> None:
    """What was read by the old order says nothing of what comes next in the new one."""
    connection.execute(
        'create table t (a text collate "C", n int, primary key (a, n));'
        "insert into t select case g % 2 when 0 then 'a' else 'B' end || lpad(g::text, 4, '0'), -g from"
        " generate_series(1, 2000) g"
    )
    slot = f"suiro_{scene.prefix}"
    connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    capture = scene.start(tables="t", chunk_rows=50, heartbeat=60)

    def records() -> int:
        return len(scene.topics.records(f"{scene.prefix}.public.t"))

    wait_until(lambda: records() > 0, 60, "the first rows")
    with psycopg.connect(postgres.dsn, dbname=scene.prefix) as other:
        other.execute("lock table t in access exclusive mode")
        assert records() < 2000, "too late: the table was read"
        other.execute(how.encode())
    capture.ready()
    assert "is read again" in capture.said()
    scene.wait_same(connection, "t", "t", ["a", "n"])
    assert capture.stop() == 0


def test_a_table_that_is_altered_before_its_turn_in_the_first_snapshot(
    scene: CaptureScene, connection: Connection
) -> None:
    connection.execute(f"{TABLES['plain']};{INSERT}".encode())
    connection.execute("create table first as select g as k from generate_series(1, 10000) g")
    connection.execute("alter table first add primary key (k); create table gone (k int primary key)")
    connection.execute(f"create publication suiro_{scene.prefix} for table first, gone, t".encode())
    capture = scene.start(chunk_rows=5)
    wait_until(lambda: scene.topics.records(f"{scene.prefix}.public.first"), 60, "the first rows")
    connection.execute("alter table t rename a to c; drop table gone")
    capture.ready()
    scene.wait_same(connection, "first", "first", ["k"])
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


def test_the_stream_brings_an_older_form_than_the_catalogue_has(scene: CaptureScene, connection: Connection) -> None:
    """A session begins with the catalogue of now: the table is read again, and then its old form goes by."""
    connection.execute(f"{TABLES['plain']};{INSERT}".encode())
    capture = scene.start(tables="t")
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    capture.kill()
    connection.execute("update t set n = -1, a = repeat('x', 3000), b = repeat('y', 3000) where k <= 100")
    connection.execute(ALTERATIONS["names swapped"].encode())
    connection.execute("update t set n = -2 where k <= 100")
    capture = scene.start(tables="t")
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    for record in scene.topics.records(f"{scene.prefix}.public.t"):
        row = scene.topics.decoded(record["value"])
        if row["n"] < 0:
            assert row["a"][0] + row["b"][0] == {-1: "xy", -2: "yx"}[row["n"]], "a state that never was"
    assert capture.stop() == 0


# -- what a position keeps of a table, without a capture ---------------------------------------------------------------


@pytest.fixture(params=TABLES)
def database(
    request: pytest.FixtureRequest, connection: Connection, postgres: Postgres, prefix: str
) -> Iterator[Database]:
    connection.execute(
        f"{TABLES[request.param]};{INSERT}; create publication p for table t with (publish_via_partition_root)".encode()
    )
    with Database(dsn_of(postgres, prefix)) as made:
        yield made


def facts(database: Database) -> Table:
    return read_table(database, "p", "public", "t", VERSION * 10_000)


def test_what_leaves_values_alone_does_not_read_a_table_again(database: Database, connection: Connection) -> None:
    state = TableState.beginning(facts(database))
    state.running = False
    for statement in (
        "vacuum full",
        "alter table t add c int",
        "update t set c = 1 where k = 5",
        "alter table t alter c set default 8",
        "vacuum full",
        "alter table t drop b; vacuum full",
        "alter table t alter a set statistics 7",
        "analyze",
    ):
        for one in statement.split(";"):
            connection.execute(one.encode())
        assert state.matches(facts(database)), statement
        state.note(facts(database))


def test_a_name_that_comes_again_is_another_column(database: Database, connection: Connection) -> None:
    """The topic still has values of the dropped one under its name, however long nothing had it."""
    state = TableState.beginning(facts(database))
    state.running = False
    for statement in ("alter table t drop n", "alter table t add m int", "alter table t rename m to o"):
        connection.execute(statement.encode())
        state.note(facts(database))
        assert not state.note(facts(database)), "noted already"
    connection.execute("alter table t add n int")
    assert not state.matches(facts(database))
    assert not state.is_completed_by_names(facts(database))
    assert TableState.beginning(facts(database)).matches(facts(database)), "read again, it is forgotten"


def test_positions_of_older_versions_are_read(database: Database, connection: Connection) -> None:
    """Columns without what they keep by now, and nothing of the filter, the order and the highest number."""
    table = facts(database)
    for kept in (3, 4):
        columns = [[one.name, one.type_oid, one.typmod, one.number][:kept] for one in table.columns]
        state = TableState(oid=table.oid, running=True, after=["7"], columns=columns, file=table.file, key_schema_id=3)
        assert state.matches(table)
        assert state.is_completed_by_names(table)
        assert state.note(table), "what it lacked"
        assert not state.note(table)
        assert state.matches(table)
    connection.execute("alter table t drop n; alter table t add n int")
    numbers = TableState(
        oid=table.oid, running=False, columns=[[*column[:4]] for column in state.columns], file=table.file
    )
    assert not numbers.matches(facts(database))
    unknown = TableState(oid=table.oid, running=False, columns=[["k", 23, -1]], file=0)
    assert unknown.matches(table), "the file of partitions was not known: nothing says that they were rewritten"


def test_facts_are_of_one_moment(database: Database, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that is renamed between two looks at the catalogue was missing from the table."""
    asked = Database.rows
    statements = 0

    def renames(self: Database, *arguments: object, **what: object) -> object:
        nonlocal statements
        found = asked(self, *arguments, **what)  # type: ignore[arg-type]
        statements += 1
        connection.execute(f"alter table t rename n{statements - 1 or ''} to n{statements}".encode())
        return found

    monkeypatch.setattr(Database, "rows", renames)
    table = facts(database)
    assert statements > 2
    assert [column.name for column in table.columns][:3] == ["k", "a", "b"]
    assert len(table.columns) == 4


@pytest.mark.skipif(VERSION < 15, reason="publications have column lists since Postgres 15")
def test_a_torn_moment_is_looked_at_again(
    database: Database, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's functions see a column that tables do not have yet in the transaction's snapshot: as if neither the
    old column of a name nor the new one were there."""
    asked = Database.rows
    looks = 0

    def alters(self: Database, query: str, *arguments: object, **what: object) -> object:
        nonlocal looks
        found = asked(self, query, *arguments, **what)  # type: ignore[arg-type]
        if "relreplident" in query:
            looks += 1
            if looks < 3:
                connection.execute("alter table t drop n; alter table t add n int")
        return found

    monkeypatch.setattr(Database, "rows", alters)
    assert [(one.name, one.number) for one in facts(database).columns] == [
        ("k", 1), ("a", 2), ("b", 3), ("n", 6)
    ]  # fmt: skip
    assert looks == 3


def test_a_composite_type_is_altered(scene: CaptureScene, connection: Connection) -> None:
    """Nothing in the log tells it. Values from before, of the same transaction or of a log that is read later, have
    other attributes."""
    connection.execute("create type point2 as (x int, y int); create table t (k int primary key, p point2)")
    connection.execute("insert into t select g, row(g, g)::point2 from generate_series(1, 3) g")
    capture = scene.start(tables="t")
    capture.ready()
    with connection.transaction():
        connection.execute("insert into t values (4, row(4, 4))")
        connection.execute("alter type point2 add attribute z int")
        connection.execute("insert into t values (5, row(5, 5, 5))")
    topic = f"{scene.prefix}.public.t"

    def written(count: int) -> list[object]:
        wait_until(
            lambda: capture.process.poll() is not None or len(scene.topics.records(topic)) >= count,
            60,
            "rows",
        )
        assert capture.process.poll() is None, capture.said()[-2000:]
        return [scene.topics.decoded(record["value"])["p"] for record in scene.topics.records(topic)]

    assert written(5)[3:] == [{"x": 4, "y": 4, "z": None}, {"x": 5, "y": 5, "z": 5}]
    capture.kill()
    connection.execute("insert into t values (6, row(6, 6, 6))")
    connection.execute("alter type point2 add attribute a text")
    connection.execute("insert into t values (7, row(7, 7, 7, 'seven'))")
    capture = scene.start(tables="t")
    assert written(7)[5:] == [{"x": 6, "y": 6, "z": 6, "a": None}, {"x": 7, "y": 7, "z": 7, "a": "seven"}]
    capture.kill()
    connection.execute("insert into t values (8, row(8, -8, 8, 'eight'))")
    connection.execute("alter type point2 drop attribute y")
    capture = scene.start(tables="t")
    assert written(8)[7:8] == [{"x": 8, "z": 8, "a": "eight"}]
    rows = "(select k, to_json(p) as p from t) rows"
    scene.wait_same(connection, "t", rows, ["k"])
    for how in ("drop attribute x, add attribute b int", "rename attribute z to c"):
        connection.execute(
            f"alter type point2 {how}; insert into t select max(k) + 1, row(1, 'a', 2)::point2 from t".encode()
        )
        scene.wait_same(connection, "t", rows, ["k"])
    assert capture.stop() == 0


def test_arrays_of_another_depth_than_declared(scene: CaptureScene, connection: Connection) -> None:
    """Postgres takes them: in the first snapshot, in changes, and in a table that replaces another one."""
    connection.execute(
        "create domain days as date[]; create type place as (n int);"
        "create table t (k int primary key, a int[], b text[][], c days, d place[]);"
        "insert into t values (1, '{1}', '{{b},{NULL}}', '{2024-01-01}', '{(1)}');"
        "insert into t values (2, '{{1,2},{3,4}}', '{}', '{}', null)"
    )
    capture = scene.start(tables="t")
    capture.ready()
    scene.wait_same(connection, "t", "(select k, a, b, c, to_json(d) as d from t) rows", ["k"])
    connection.execute(
        "insert into t values (3, '{{{5}}}', '{c}', '{{2024-01-02}}', '{{(2)},{NULL}}'), (4, '{6}', null, null, null)"
    )
    scene.wait_same(connection, "t", "(select k, a, b, c, to_json(d) as d from t) rows", ["k"])
    capture.kill()
    connection.execute("insert into t values (5, '{{7}}')")
    connection.execute("drop table t; create table t (k int primary key, a int[], b text[])")
    connection.execute("insert into t values (6, '{8}', '{d}'), (7, '{{{{9}}}}', null)")
    capture = scene.start(tables="t")
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


def test_arrays_of_another_depth_within_composite_types(scene: CaptureScene, connection: Connection) -> None:
    connection.execute(
        "create domain names as text[]; create type leg as (stops int[], n int);"
        "create type trip as (legs leg[], a names);"
        "create table t (k int primary key, l leg, t trip, u trip[]);"
        """insert into t values (1, '({1},1)', row(array['({2},2)'::leg], '{a}'), array[row(null, '{b}')::trip]);"""
        "insert into t values (2, '(\"{{1,2},{3,4}}\",1)', null, null)"
    )
    rows = "(select k, to_json(l) as l, to_json(t) as t, to_json(u) as u from t) rows"
    capture = scene.start(tables="t")
    capture.ready()
    scene.wait_same(connection, "t", rows, ["k"])
    connection.execute("insert into t values (3, null, row(array[[row('{{{5}}}', 3)::leg]], '{c}'), null)")
    connection.execute(
        "insert into t values (4, null, null, array[row(null, '{{d},{NULL}}')::trip]), (5, '({6},6)', null, null)"
    )
    scene.wait_same(connection, "t", rows, ["k"])
    capture.kill()
    connection.execute("insert into t values (6, '({{7}},7)', row(null, '{e}'), null)")
    capture = scene.start(tables="t")
    scene.wait_same(connection, "t", rows, ["k"])
    assert capture.stop() == 0


def test_composite_types_are_renamed(scene: CaptureScene, connection: Connection) -> None:
    """The registry would refuse a record of another name, and readers would not know it."""
    connection.execute(
        "create type part as (n int, at timestamptz); create type whole as (p part, all_parts part[]);"
        "create table t (k int primary key, a whole, b part);"
        "insert into t values (1, row(row(1, '2024-01-01 00:00:00Z'), null), row(2, null))"
    )
    capture = scene.start(tables="t")
    capture.ready()
    capture.kill()
    connection.execute("insert into t values (2, null, row(3, null))")
    connection.execute("create schema other; alter type part rename to piece; alter type whole set schema other")
    connection.execute("create type part as (m text); alter table t add c part")
    connection.execute(
        "insert into t values (3, row(row(4, null), array[row(5, null)::piece]), row(6, null), row('c'))"
    )
    capture = scene.start(tables="t")
    topic = f"{scene.prefix}.public.t"
    wait_until(lambda: capture.process.poll() is not None or len(scene.topics.records(topic)) >= 3, 60, "rows")
    assert capture.process.poll() is None, capture.said()[-2000:]
    values = {
        value["k"]: value for value in map(scene.topics.decoded, (r["value"] for r in scene.topics.records(topic)))
    }
    assert values[2]["b"] == {"n": 3, "at": None}
    assert (values[3]["a"]["all_parts"], values[3]["b"], values[3]["c"]) == (
        [{"n": 5, "at": None}], {"n": 6, "at": None}, {"m": "c"}
    )  # fmt: skip
    assert capture.stop() == 0


def test_a_table_that_gets_its_key_after_rows(scene: CaptureScene, connection: Connection) -> None:
    """The log has rows that nothing names. The capture ended there, at each start again."""
    connection.execute("create table t (k int primary key, n int); insert into t values (1, 1)")
    capture = scene.start()
    capture.ready()
    connection.execute("create table u (k int not null, n int); insert into u values (1, 1), (2, 2)")
    wait_until(lambda: capture.process.poll() is not None, 60, "the end of the capture")
    assert 'ALTER TABLE "public"."u" ADD PRIMARY KEY' in capture.said()
    connection.execute("insert into u values (3, 3); alter table u add primary key (k)")
    connection.execute("insert into u values (4, 4); update u set n = 5 where k = 1; delete from u where k = 2")
    capture = scene.start()
    capture.ready()
    scene.wait_same(connection, "u", "u", ["k"])
    # The key of a table that was read goes and comes.
    with connection.transaction():
        connection.execute("alter table t drop constraint t_pkey; insert into t values (2, 2)")
        connection.execute("alter table t add primary key (k)")
    connection.execute("insert into t values (3, 3)")
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


def test_another_key_with_replica_identity_full(scene: CaptureScene, connection: Connection) -> None:
    """Only the catalogue has the key, which may be newer than the row: null in a row of the log."""
    connection.execute("create table t (a int primary key, b int not null, c int)")
    connection.execute("alter table t replica identity full; insert into t values (1, 1, 1)")
    capture = scene.started(tables="t")
    with RegistryClient(scene.options["registry"]) as registry:
        registry.set_compatibility("NONE", f"{scene.prefix}.public.t-key")
    another = "alter table t drop constraint t_pkey; alter table t add primary key ({})"
    connection.execute(another.format("b").encode())
    connection.execute("insert into t values (1, 5, 5), (1, 6, 6)")
    scene.wait_same(connection, "t", "t", ["b"])
    killed(scene, capture, connection)
    connection.execute("insert into t values (2, 7, null), (2, 8, 8); update t set c = 7 where b = 7")
    connection.execute(another.format("c").encode())
    connection.execute("delete from t where c = 5")
    capture = scene.started(tables="t")
    scene.wait_same(connection, "t", "t", ["c"])
    killed(scene, capture, connection)
    # Rows of a table that was dropped have the key of the one that has its name now.
    connection.execute("alter table t alter b drop not null; insert into t values (9, null, 9); drop table t")
    connection.execute("create table t (b int primary key, c int); alter table t replica identity full")
    connection.execute("insert into t values (1, 1)")
    capture = scene.started(tables="t")
    scene.wait_same(connection, "t", "t", ["b"])
    assert capture.stop() == 0


def test_types_that_were_dropped_before_the_stream_comes_to_them(scene: CaptureScene, connection: Connection) -> None:
    """The catalogue has neither them, nor how deep an array in a column was that was dropped or renamed. Nor has the
    topic's latest schema, if a capture is killed when it has registered it."""
    connection.execute(
        "create domain price as numeric(6,2); create domain small as int; create type mood as enum ('ok');"
        " create type offer as (at timestamptz, prices price[]);"
        " create table t (k small primary key, o offer, moods mood[], deep int[][])"
    )
    row = "'(2024-01-01 00:00:00Z,\"{1.50,NULL}\")', '{ok}', '{{1,2},{3,4}}'"
    connection.execute(f"insert into t values (1, {row})".encode())
    capture = scene.start(tables="t")
    capture.ready()
    capture.kill()
    connection.execute(f"insert into t values (2, {row})".encode())
    connection.execute(
        "alter table t drop o, alter k type int, alter moods type text[]; alter table t rename deep to deeper;"
        " drop type offer, mood; drop domain price, small"
    )
    connection.execute("insert into t values (3, '{ok}', '{{5}}')")
    with RegistryClient(scene.options["registry"]) as registry:
        subject = f"{scene.prefix}.public.t-value"
        later = json.loads(registry.latest(subject).schema.text)
        later["fields"] = [field for field in later["fields"] if field["name"] not in ("o", "deep")]
        registry.register(subject, Schema(json.dumps(later)))
    scene.start(tables="t").ready()
    scene.wait_same(connection, "t", "t", ["k"])
    records = scene.topics.records(f"{scene.prefix}.public.t")
    values = [scene.topics.decoded(one["value"]) for one in records if one["value"] is not None]
    first, second = (next(value for value in values if value["k"] == key) for key in (1, 2))
    assert second == first | {"k": 2}
    assert (first["moods"], first["deep"]) == (["ok"], [[1, 2], [3, 4]])
    assert str(first["o"]["prices"]) == "[Decimal('1.50'), None]"
