"""Tables that are replaced, altered, dropped or locked while a capture reads them, and what the stream does not tell:
the topic ends equal to the table of that name."""

from __future__ import annotations

import json
import struct

import psycopg
import pytest
from support.capturing import (
    DOCS,
    ROWS,
    CaptureScene,
    Connection,
    dsn_of,
    in_the_middle,
    killed,
    make_slot,
    records,
)
from support.postgres import Postgres
from support.share import one_of
from support.waiting import wait_until

from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.server.publication import read_table
from suiro.connect.postgres.snapshot.ranges import FIRST_KEYS, chunk_size, read_keys
from suiro.errors import BrokenConnectionError

FOREVER_S = 3_600  # a heartbeat that never comes, so that no look at the catalogue helps


REPLACED = {
    "dropped and created": "insert into t select g, g, 1 from generate_series(101, 200) g; drop table t;"
    " create table t (k int, b int, v int, primary key (k, b)); insert into t values (1, 1, 2), (900, 900, 2)",
    "renamed": "insert into t select g, g, 1 from generate_series(101, 200) g;"
    " create table n (k int, b int, v int, primary key (k, b)); insert into n values (1, 1, 2), (900, 900, 2);"
    " alter table t rename to o; alter table n rename to t",
    "another key": "insert into t select g, g, 1 from generate_series(101, 200) g; delete from t where k > 150;"
    " alter table t drop constraint t_pkey; alter table t add primary key (k)",
    "replaced for a while": "create table n (k int, b int, v int, primary key (k, b));"
    " alter table t rename to o; alter table n rename to t; insert into t values (901, 901, 3);"
    " alter table t rename to n; alter table o rename to t",
}


@pytest.mark.parametrize("how", one_of(2, REPLACED))
def test_a_table_that_was_replaced_while_no_capture_ran(scene: CaptureScene, connection: Connection, how: str) -> None:
    """The catalogue has the new table when the stream still brings changes of the old one."""
    connection.execute("create table t (k int, b int, v int, primary key (k, b))")
    connection.execute("insert into t select g, g, 0 from generate_series(1, 100) g")
    capture = scene.started(partitions=1)
    killed(scene, capture, connection)
    for statement in REPLACED[how].split(";"):
        connection.execute(statement.encode())
    capture = scene.started(partitions=1)
    key = ["k"] if how == "another key" else ["k", "b"]
    scene.wait_same(connection, "t", "t", key)
    if how == "replaced for a while":  # its row went out under the other table's name
        scene.wait_same(connection, "n", "n", key)
    assert capture.stop() == 0


def test_a_table_that_had_a_name_for_a_while_that_is_not_captured(scene: CaptureScene, connection: Connection) -> None:
    """Its changes came under that name and were left out, and nothing told that the topic lacked them."""
    connection.execute("create table t (k int primary key, v int)")
    connection.execute("insert into t select g, 0 from generate_series(1, 100) g")
    capture = scene.started(tables="t")
    killed(scene, capture, connection)
    connection.execute("alter table t rename to o")
    connection.execute("update o set v = 1 where k <= 10")
    connection.execute("delete from o where k > 90")
    connection.execute("alter table o rename to t")
    capture = scene.started(tables="t", heartbeat=FOREVER_S)
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


def test_a_table_that_gets_a_name_that_is_not_captured(scene: CaptureScene, connection: Connection) -> None:
    """Its changes still went into the topic of its former name, until the capture was restarted."""
    connection.execute("create table t (k int primary key, v int); create table u (k int primary key)")
    capture = scene.started(tables="t,u", heartbeat=FOREVER_S)
    connection.execute("insert into t values (1, 0)")
    scene.wait_same(connection, "t", "t", ["k"])
    connection.execute("alter table t rename to o")
    connection.execute("insert into o values (2, 0)")
    connection.execute("insert into u values (1)")
    scene.wait_same(connection, "u", "u", ["k"])
    assert [scene.topics.decoded(record["key"]) for record in records(scene)] == [{"k": 1}]
    assert capture.stop() == 0


def test_a_table_whose_name_is_not_captured_when_it_is_looked_at(scene: CaptureScene, connection: Connection) -> None:
    """The look does not list it, so it was not known whose changes were left out."""
    connection.execute("create table t (k int primary key, v int); create table u (k int primary key, v int)")
    connection.execute("create publication every for all tables")
    capture = scene.started(publication="every", tables="t,u", heartbeat=FOREVER_S)
    connection.execute("insert into t values (1, 0)")
    scene.wait_same(connection, "t", "t", ["k"])  # the first look is over
    connection.execute("alter table t rename to o")
    with connection.transaction():  # when its change comes, another table has its name: a look follows
        connection.execute("alter table u add x int; insert into u values (1, 0, 0); drop table u")
        connection.execute("create table u (k int primary key, v int); insert into u values (2, 0)")
    scene.wait_same(connection, "u", "u", ["k"])
    connection.execute("insert into o values (2, 0)")
    connection.execute("alter table o rename to t")
    connection.execute("insert into t values (3, 0)")
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


def test_a_table_that_is_replaced_between_two_ranges(
    scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    """The stream has nothing of the other table, whose key has the same schema and whose rows are one range."""
    connection.execute(DOCS.encode())
    connection.execute("create table n (like t including all)")
    connection.execute(f"insert into n select g, 1, 'other', '' from generate_series({ROWS}, {ROWS + 20}) g")
    make_slot(connection, scene)
    capture = scene.start(chunk_rows=100, heartbeat=FOREVER_S)
    in_the_middle(scene, postgres, "alter table t rename to o; alter table n rename to t", rows=300)
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


def test_a_table_that_is_dropped_while_it_is_read(
    scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    connection.execute(DOCS.encode())
    connection.execute("create table u (k int primary key)")
    make_slot(connection, scene)
    capture = scene.start(chunk_rows=100)
    in_the_middle(scene, postgres, "drop table t", rows=100)
    capture.ready()
    connection.execute("insert into u values (1)")
    scene.wait_same(connection, "u", "u", ["k"])
    assert capture.stop() == 0


def test_a_locked_table_holds_up_no_changes(scene: CaptureScene, connection: Connection, postgres: Postgres) -> None:
    """Changes of other tables go on, and the log says who holds the lock."""
    connection.execute(DOCS.encode())
    connection.execute("create table u (k int primary key)")
    make_slot(connection, scene)
    capture = scene.start(chunk_rows=100)
    wait_until(lambda: len(records(scene)) >= 100, 60, "the first rows")
    with psycopg.connect(postgres.dsn, dbname=scene.prefix) as other:
        other.execute("lock table t in access exclusive mode")
        held = len(records(scene)) < ROWS
        assert held, "too late: the table was read"
        connection.execute("insert into u values (5000)")
        scene.wait_same(connection, "u", "u", ["k"])
        pid = other.info.backend_pid
        wait_until(lambda: f"process {pid}" in capture.said(), 60, "who holds the lock")
        connection.execute("insert into u values (5001)")
        scene.wait_same(connection, "u", "u", ["k"])
        assert not any(event["event"] == "ready" for event in capture.events)
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    assert "starting over" not in capture.said()
    assert capture.stop() == 0


def test_owed_rows_of_a_partition_that_is_truncated(
    scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    """The stream does not tell of it: a row that is owed and not there begins the table again."""
    connection.execute(
        DOCS.replace("note text)", "note text) partition by range (k)")
        .replace(
            "alter table",
            "create table low partition of t for values from (minvalue) to (1001);"
            " create table high partition of t for values from (1001) to (maxvalue); alter table",
            1,
        )
        .encode()
    )
    connection.execute("alter table low alter doc set storage external, alter note set storage external")
    connection.execute("update t set doc = doc || 'x', note = note || 'x'")
    make_slot(connection, scene)
    capture = scene.start(tables="t", chunk_rows=100)
    in_the_middle(
        scene,
        postgres,
        "update t set k = k - 10000 where k between 900 and 1000; truncate table low",
        rows=300,
    )
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


LABELS = """
create type label as enum ('a', 'b', 'c');
create table t (k label, n int, v int, doc text, primary key (k, n));
alter table t alter doc set storage external;
insert into t select case when g <= 1000 then 'a' else 'c' end::label, g, 0, repeat(md5(g::text), 80)
    from generate_series(1, 2000) g
"""


def test_owed_keys_whose_text_is_no_value_any_more_begin_the_table_again(
    scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    connection.execute(LABELS.encode())
    make_slot(connection, scene)
    capture = scene.start(tables="t", chunk_rows=100)
    in_the_middle(
        scene,
        postgres,
        "update t set n = -n where n > 1900; update t set k = 'a' where n < 0; "
        "update t set n = n - 10000 where n < 0; alter type label rename value 'a' to 'first'",
        rows=100,
    )
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k", "n"])
    assert capture.stop() == 0


def test_owed_keys_whose_text_is_no_value_any_more_where_no_table_is_read(
    scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    """The error names the key and says what to do, and that helps."""
    connection.execute(LABELS.encode())
    capture = scene.started(tables="t", snapshot="never")
    with connection.transaction():
        connection.execute("update t set v = 1 where n = 7")
        connection.execute("alter type label rename value 'a' to 'first'")
    assert capture.ended() == 1
    assert "(a, 7)" in capture.said()
    assert "--snapshot new" in capture.said()
    capture = scene.started(tables="t", snapshot="new")
    scene.wait_same(connection, "t", "t", ["k", "n"])
    assert capture.stop() == 0


def test_messages_of_strangers_under_the_capture_s_prefix(scene: CaptureScene, connection: Connection) -> None:
    """Every role may write into Postgres's log: what is no message of a capture is reported and left."""
    connection.execute("create table t (k int primary key)")
    capture = scene.started(tables="t")
    slot = f"suiro_{scene.prefix}"
    name = f"{scene.prefix}.{slot}"
    contents = [
        "",
        "no JSON",
        "[1]",
        "7",
        "[" * 200_000 + "]" * 200_000,
        '{"a":' * 1_000 + "1" + "}" * 1_000,
        json.dumps({"capture": name, "snapshot": {"deep": [1]}}),
        json.dumps({"capture": name, "mark": ""}),
        json.dumps({"capture": [name]}),
    ]
    for content in contents:
        connection.execute("select pg_logical_emit_message(true, 'suiro', %s::text)", (content,))
    connection.execute("select pg_logical_emit_message(true, 'suiro', '\\xff00'::bytea)")
    connection.execute("insert into t values (1)")
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.process.poll() is None
    assert "nested deeper than 500 levels" in capture.said()
    assert capture.said().count("is no message of a capture") >= 6
    assert capture.stop() == 0


def test_owed_rows_are_read_up_to_a_limit_of_bytes(postgres: Postgres, connection: Connection) -> None:
    """However many keys are owed: their rows are in memory at once. At least one is read."""
    connection.execute("create table t (k int primary key, doc text)")
    connection.execute("alter table t alter doc set storage external")
    connection.execute("insert into t select g, repeat('x', 200_000) from generate_series(1, 60) g")
    connection.execute("insert into t select g, 'small' from generate_series(61, 4000) g")
    connection.execute("create publication few for table t")
    keys = [(str(key),) for key in range(1, 4_001)]
    limit = 2_000_000
    with Database(dsn_of(postgres, connection.info.dbname)) as database:
        table = read_table(database, "few", "public", "t", connection.info.server_version)
        sizes, found = [], 0
        while found < len(keys):
            data, count = read_keys(database, table, "k, doc", keys[found:], limit_bytes=limit)
            body = data[19:-2]
            rows = body.count(struct.pack(">hi", 2, 4))  # two columns, the first of four bytes
            assert rows == count
            found += count
            sizes.append(len(data))
        assert max(sizes) <= 2 * limit
        assert len(sizes) < 20
        _, count = read_keys(database, table, "k, doc", keys, limit_bytes=1)
        assert 1 <= count <= FIRST_KEYS


def test_ranges_of_a_table_that_was_never_analyzed(postgres: Postgres, connection: Connection) -> None:
    """A count that stops early would make its rows look large, and its ranges tiny."""
    connection.execute("create table t (k int primary key, v text)")
    connection.execute("insert into t select g, md5(g::text) from generate_series(1, 200000) g")
    connection.execute("create publication few for table t")
    with Database(dsn_of(postgres, connection.info.dbname)) as database:
        table = read_table(database, "few", "public", "t", connection.info.server_version)
        rows, expected = chunk_size(database, table, 10_000)
    assert rows == 10_000
    assert 100_000 < expected < 400_000  # by the size of the file


def test_a_standby_that_was_promoted_is_asked_as_one(postgres: Postgres, connection: Connection) -> None:
    """The session ends and the next one asks the server again what it is."""
    with (
        Database(dsn_of(postgres, connection.info.dbname)) as database,
        pytest.raises(BrokenConnectionError, match="promoted"),
    ):
        database.received_position()


def test_rows_that_row_level_security_would_hide_are_refused(
    scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    """The stream would bring them and a snapshot would not: they would be gone from the topic, and come back."""
    role = f"r{scene.prefix}"
    connection.execute("create table t (k int primary key)")
    connection.execute("insert into t select generate_series(1, 10)")
    connection.execute("create publication few for table t")
    connection.execute(f"create role {role} login replication".encode())
    connection.execute(f"grant select on t to {role}".encode())
    connection.execute("alter table t enable row level security")
    connection.execute(f"create policy even on t for select to {role} using (k % 2 = 0)".encode())
    dsn = dsn_of(postgres, scene.prefix).replace("postgresql://postgres:@", f"postgresql://{role}:@")
    capture = scene.start(tables="t", publication="few", dsn=dsn)
    assert capture.ended() == 1
    assert "row-level security" in capture.said()
    assert not records(scene)
