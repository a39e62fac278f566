"""`suiro capture postgres` as it is used: ready, kills in the middle of a snapshot, requests, refusals, take-over."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import pytest
from support.capturing import CaptureScene, Connection, records
from support.postgres import VERSION, Postgres
from support.waiting import wait_until

from suiro.connect import CaptureOptions, PostgresCapture, request_snapshot
from suiro.connect.postgres import session
from suiro.connect.postgres.server.publication import Table
from suiro.connect.postgres.session import Session
from suiro.connect.postgres.tables import Tables
from suiro.errors import ConfigError


def test_every_record_says_where_it_comes_from(scene: CaptureScene, connection: Connection) -> None:
    connection.execute("create table t (id int primary key, name text)")
    connection.execute("insert into t values (1, 'one'), (2, 'two')")
    capture = scene.start()
    ready = capture.ready()
    assert ready["topics"] == [f"{scene.prefix}.public.t"]
    assert ready["rows"] == 2
    with connection.transaction():
        connection.execute("insert into t values (3, 'three')")
        connection.execute("update t set id = 4 where id = 1")
        connection.execute("delete from t where id = 2")
        (xid,) = connection.execute("select pg_current_xact_id()::text").fetchone() or ()
    connection.execute("truncate t")
    topic = f"{scene.prefix}.public.t"
    wait_until(lambda: len(records(scene)) == 8, 60, "eight records")
    found = records(scene)
    said = [{header["key"]: header["value"].decode() for header in record["headers"]} for record in found]
    keys = [scene.topics.decoded(record["key"])["id"] for record in found]
    assert [(key, one["op"], one["origin"]) for key, one in zip(keys, said, strict=True)][:6] == [
        (1, "read", "snapshot"),
        (2, "read", "snapshot"),
        (3, "insert", "live"),
        (1, "delete", "live"),
        (4, "update", "live"),
        (2, "delete", "live"),
    ]
    assert sorted((key, one["op"]) for key, one in zip(keys, said, strict=True))[-2:] == [
        (4, "truncate"),
        (4, "update"),
    ]
    assert {one["xid"] for one in said[2:6]} == {xid}
    assert len({record["timestamp"] for record in found[2:6]}) == 1
    assert [one["lsn"] for one in said[2:]] == sorted(one["lsn"] for one in said[2:])
    configs = scene.topics.client.describe_configs([topic])[topic]
    assert configs["cleanup.policy"] == "compact"
    assert capture.stop() == 0


def test_a_snapshot_that_is_killed_goes_on_where_it_was(scene: CaptureScene, connection: Connection) -> None:
    connection.execute("create table t (id int primary key, name text)")
    connection.execute("insert into t select g, repeat('x', 100) from generate_series(1, 120000) g")
    capture = scene.start(chunk_rows=2000)
    wait_until(lambda: records(scene), 60, "the first rows")
    capture.kill()
    before = len(records(scene))
    assert 0 < before < 120_000
    connection.execute("update t set name = 'changed' where id % 1000 = 0")
    connection.execute("delete from t where id in (1, 2, 119999)")
    connection.execute("update t set id = -id where id in (5, 110000)")
    capture = scene.start()
    ready = capture.ready()
    assert ready["rows"] <= 120_000 - before + 2, "what was there is not read again"
    scene.wait_same(connection, "t", "t", ["id"])
    assert capture.stop() == 0


def test_a_request_for_a_snapshot_that_nobody_serves(
    scene: CaptureScene, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    connection.execute("create table t (id int primary key)")
    with pytest.raises(ConfigError, match=r"table public\.no_such does not exist"):
        request_snapshot(scene.options["dsn"], topic_prefix=scene.prefix, table="no_such")
    assert "no slot" not in caplog.text
    request_snapshot(scene.options["dsn"], topic_prefix="another", table="t")
    assert "no slot suiro_another" in caplog.text


@pytest.mark.soak  # CI's time
def test_keys_that_a_new_snapshot_does_not_see_get_tombstones(scene: CaptureScene, connection: Connection) -> None:
    connection.execute("create table t (id int primary key, name text)")
    connection.execute("insert into t select g, 'x' from generate_series(1, 100) g")
    capture = scene.started()
    capture.kill()
    slot = f"suiro_{scene.prefix}"
    gone = "select count(*) from pg_replication_slots where slot_name = %s and not active"
    wait_until(lambda: connection.execute(gone, (slot,)).fetchone() == (1,), 30, "the slot's release")
    connection.execute("select pg_drop_replication_slot(%s)", (slot,))
    connection.execute("delete from t where id > 90")

    refused = scene.start()
    assert refused.ended() == 1
    assert "does not exist any more" in refused.said()
    assert "--snapshot new" in refused.said()

    capture = scene.started(snapshot="new")
    scene.wait_same(connection, "t", "t", ["id"])

    # One table again, as asked, while changes go on.
    before = len(records(scene))
    request_snapshot(scene.options["dsn"], topic_prefix=scene.prefix, table="t")
    wait_until(lambda: len(records(scene)) >= before + 90, 60, "the table again")
    assert capture.stop() == 0


@pytest.mark.parametrize(
    ("statements", "tables", "words"),
    [
        ("create table t (a int)", "t", ["no primary key", "REPLICA IDENTITY"]),
        ("create table t (a int)", "", ["no primary key", "REPLICA IDENTITY"]),
        (
            "create table t (a int); create publication pub with (publish_via_partition_root = true)",
            "t",
            ["no primary key"],
        ),
        (
            "create table t (a int) partition by range (a); create table t_1 partition of t for values from (0) to (9);"
            " alter table t replica identity full; insert into t values (2)",
            "t",
            ["t_1", "no primary key"],
        ),
        ("create table t (a int primary key); alter table t replica identity nothing", "t", ["NOTHING"]),
        ("create view t as select 1 as a", "t", ["a view"]),
        ("select 1", "t", ["does not exist"]),
        ("create publication pub with (publish = 'insert')", "", ["leaves out some operations"]),
        (
            "create table t (k int primary key) partition by range (k); create publication pub for table t",
            "t",
            ["partitions of public.t by their own names", "publish_via_partition_root = true"],
        ),
    ],
)
def test_what_cannot_be_captured_is_refused_with_what_mends_it(
    scene: CaptureScene, connection: Connection, statements: str, tables: str, words: list[str]
) -> None:
    connection.execute(statements)
    options = CaptureOptions(**scene.within_options(tables=(tables,) if tables else (), publication="pub"))
    with pytest.raises(ConfigError) as refused:
        PostgresCapture(options).run()
    for word in words:
        assert word in str(refused.value)
    if "create table t (a int)" in statements:
        # Postgres refuses this for a table that is published without a key.
        connection.execute("update t set a = 1")


def test_a_table_that_comes_and_goes_between_two_looks_ends_nothing(
    scene: CaptureScene, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalogue had it when it was looked at, and has it no more when its snapshot begins."""
    look, dropped = Tables.look, threading.Event()

    def look_and_drop(self: Tables) -> list[Table]:
        found = look(self)
        if any(table.name == "u" for table in found):
            connection.execute("drop table u")
            dropped.set()
        return found

    monkeypatch.setattr(Tables, "look", look_and_drop)
    connection.execute("create table t (id int primary key, name text)")
    with scene.within(heartbeat_s=0.1) as capture:
        capture.reaches(capture.is_ready, "ready")
        connection.execute("create table u (id int primary key)")
        capture.reaches(dropped.is_set, "a look at the catalogue")
        connection.execute("insert into t values (1, 'one')")
        capture.reaches(lambda: records(scene), "the row")
    assert capture.failed is None


@pytest.mark.soak  # CI's time
def test_a_second_capture_takes_over(scene: CaptureScene, connection: Connection) -> None:
    connection.execute("create table t (id int primary key, name text)")
    first = scene.started(heartbeat=0.3)
    os.kill(first.process.pid, signal.SIGSTOP)  # it lives, and does not know
    second = scene.started()
    connection.execute("insert into t values (1, 'one')")
    os.kill(first.process.pid, signal.SIGCONT)
    assert first.ended() == 1
    assert "another capture took over" in first.said()
    scene.wait_same(connection, "t", "t", ["id"])
    assert second.stop() == 0


def test_far_behind_it_reads_by_sql(scene: CaptureScene, connection: Connection) -> None:
    connection.execute("create table t (id int primary key, name text)")
    capture = scene.started()
    assert capture.stop() == 0
    for number in range(20):
        connection.execute(
            "insert into t select g, repeat('x', 100) from generate_series(%s::int, %s::int) g",
            (number * 2_000, number * 2_000 + 1_999),
        )
    connection.execute("delete from t where id % 3 = 0")
    # Postgres 18 announces the end of its subtransaction, as if it had been streamed.
    connection.execute(f"alter database {scene.prefix} set logical_decoding_work_mem = '64kB'".encode())
    with connection.transaction(force_rollback=True):
        with connection.transaction():
            connection.execute("insert into t values (-1)")
        connection.execute("update t set name = 'never'")
    capture = scene.started(catch_up_mb=1)
    scene.wait_same(connection, "t", "t", ["id"])
    assert "by SQL" in capture.said()
    assert capture.stop() == 0


DECODED = "select bool_and(sent_lsn >= pg_current_wal_lsn()) from pg_stat_replication"
LOOKS_MS = 50


@pytest.fixture
def streaming(
    scene: CaptureScene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[], AbstractContextManager[Callable[[], bool]]]:
    """A capture of the table t that asks often how far behind it is. It never reads by SQL. What it gives says whether
    it has asked ten times."""
    is_far_behind = Session._is_far_behind
    asked: set[int] = set()

    def asks(capture: Session, stream: Any) -> bool:
        asked.add(capture._clock.monotonic_ms() // LOOKS_MS)
        return is_far_behind(capture, stream)

    @contextmanager
    def started() -> Iterator[Callable[[], bool]]:
        monkeypatch.setattr(session, "LAG_INTERVAL_MS", LOOKS_MS)
        monkeypatch.setattr(Session, "_is_far_behind", asks)
        caplog.set_level(logging.INFO)
        with scene.within(tables=("t",), heartbeat_s=60, catch_up_bytes=4 << 20) as capture:
            capture.reaches(capture.is_ready, "ready")
            asked.clear()
            yield lambda: len(asked) >= 10
            assert capture.failed is None
        assert "by SQL" not in caplog.text

    return started


def test_what_others_write_does_not_end_the_stream(streaming: Any, scene: CaptureScene, connection: Connection) -> None:
    """The position stands, but the stream is at the end of the log. To read by SQL would be to decode all of it again,
    each time from the oldest open transaction on."""
    connection.execute("create table t (id int primary key, name text); create table others (id int, name text)")
    with streaming() as has_looked:
        megabytes = 0
        while megabytes < 10 or not has_looked():
            connection.execute("insert into others select g, repeat('x', 1000) from generate_series(1, 1000) g")
            wait_until(lambda: connection.execute(DECODED).fetchone() == (True,), 60, "the stream")
            megabytes += 1
        connection.execute("insert into t values (1, 'one')")
        scene.wait_same(connection, "t", "t", ["id"])


def test_a_transaction_that_is_open_for_long_is_decoded_once(
    streaming: Any, scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    """The stream brings nothing of it, and says nothing while Postgres decodes it. To read by SQL would be to decode it
    again from its start."""
    connection.execute("create table t (id int primary key, name text)")
    connection.execute(f"alter database {scene.prefix} set logical_decoding_work_mem = '64kB'".encode())
    with streaming() as has_looked:
        megabytes = 0
        with psycopg.connect(postgres.dsn, dbname=scene.prefix) as bulk:
            while megabytes < 10 or not has_looked():
                bulk.execute(
                    "insert into t select g, repeat('x', 1000) from generate_series(%s::int, %s::int) g",
                    (megabytes * 1_000, megabytes * 1_000 + 999),
                )
                # Else the end of what was written stays in memory for up to 20 s, and no stream has it.
                connection.execute("checkpoint")
                wait_until(lambda: connection.execute(DECODED).fetchone() == (True,), 60, "the stream")
                megabytes += 1
        scene.wait_same(connection, "t", "t", ["id"])


@pytest.mark.skipif(VERSION < 15, reason="publications have no columns")
def test_a_rollback_that_postgres_does_not_announce(
    scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    """Of a subtransaction of which it has put more than 4,096 changes on its disk. The row, which never was, got into
    the topic when Postgres streamed transactions before their commit."""
    connection.execute("create table t (id int primary key, large text)")
    connection.execute("alter table t alter large set storage external")
    publication = f"create publication suiro_{scene.prefix} for table t (id) with (publish_via_partition_root)"
    connection.execute(publication.encode())
    connection.execute(f"alter database {scene.prefix} set logical_decoding_work_mem = '64kB'".encode())
    capture = scene.started(tables="t")
    with psycopg.connect(postgres.dsn, dbname=scene.prefix) as other:
        other.execute("insert into t select g from generate_series(1, 2000) g")
        with other.transaction(force_rollback=True):
            other.execute("insert into t values (-1, repeat('x', 12000000))")
            connection.execute("checkpoint")
            wait_until(lambda: connection.execute(DECODED).fetchone() == (True,), 60, "the stream")
    scene.wait_same(connection, "t", "(select id from t) t", ["id"])
    assert capture.stop() == 0


AUDIT = """
create table t (id int primary key, v int);
create table audit (n bigserial primary key, xid text, op text, old int, new int);
create function note() returns trigger language plpgsql as $$ begin
    insert into audit (xid, op, old, new) values (pg_current_xact_id()::text, lower(tg_op),
        case when tg_op <> 'INSERT' then old.id end, case when tg_op <> 'DELETE' then new.id end);
    return null;
end $$;
create trigger noted after insert or update or delete on t for each row execute function note();
"""


def test_the_topic_has_each_change_once_as_triggers_saw_them(scene: CaptureScene, connection: Connection) -> None:
    """An account of the changes that has nothing to do with decoding: rows that triggers wrote beside them."""
    connection.execute(AUDIT)
    connection.execute(f"alter database {scene.prefix} set logical_decoding_work_mem = '64kB'".encode())
    draw = random.Random(7)
    capture = scene.started(tables="t")
    for step in range(150):
        with connection.transaction(force_rollback=draw.random() < 0.2):
            for _ in range(draw.choice((1, 2, 400 if step % 50 == 7 else 3))):
                with connection.transaction(force_rollback=draw.random() < 0.2):
                    key = draw.randrange(50)
                    connection.execute(
                        "insert into t values (%s, %s) on conflict (id) do update set v = excluded.v",
                        (key, step),
                    )
                    connection.execute(
                        "update t set id = id + 100 where id = %s and id + 100 not in (select id from t)",
                        (draw.randrange(50),),
                    )
                    connection.execute("delete from t where id = %s", (draw.randrange(150),))
        if step in (50, 100):
            capture.kill()
            capture = scene.start(tables="t")
    wanted: dict[str, list[tuple[str, int]]] = {}
    for xid, op, old, new in connection.execute("select xid, op, old, new from audit order by n"):
        changes = wanted.setdefault(xid, [])
        if old is not None and old != new:
            changes.append(("delete", old))
        if new is not None:
            changes.append((op, new))

    def found() -> dict[str, list[tuple[str, int]]]:
        seen: dict[str, list[tuple[str, int]]] = {}
        for record in records(scene):
            headers = {header["key"]: header["value"].decode() for header in record["headers"]}
            key = scene.topics.decoded(record["key"])["id"]
            seen.setdefault(headers["xid"], []).append((headers["op"], key))
        return seen

    wait_until(lambda: len(found()) >= len(wanted), 60, "every transaction")
    assert found() == wanted
    assert list(found()) == list(wanted), "in the order of commits"
    assert capture.stop() == 0


SENT = """select sent_lsn >= pg_current_wal_flush_lsn() from pg_stat_replication
    where pid = (select active_pid from pg_replication_slots where slot_name = %s)"""


@pytest.mark.soak  # CI's time
def test_a_slot_is_never_ahead_of_the_position(scene: CaptureScene, connection: Connection) -> None:
    """Nothing is captured, the log goes on: a kill at any moment leaves a slot from which the next start goes on."""
    connection.execute("create table t (id int primary key)")
    connection.execute("create table other (id int)")
    for number in range(3):
        capture = scene.started(tables="t", heartbeat=60)
        connection.execute("insert into other select g from generate_series(1, 1000) g")
        wait_until(
            lambda: connection.execute(SENT, (f"suiro_{scene.prefix}",)).fetchone() == (True,),
            30,
            "all is sent",
        )
        connection.execute("insert into t values (%s)", (number,))
        capture.kill()
    capture = scene.started(tables="t")
    scene.wait_same(connection, "t", "t", ["id"])
    assert capture.stop() == 0


def test_a_stop_does_not_wait_for_others_transactions(
    scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    connection.execute("create table t (id int primary key)")
    with psycopg.connect(postgres.dsn, dbname=scene.prefix) as other:
        other.execute("insert into t values (1)")  # and no commit: a slot cannot be made
        capture = scene.start()
        waits = "select count(*) from pg_stat_activity where query like 'CREATE_REPLICATION_SLOT%' and state = 'active'"
        wait_until(lambda: connection.execute(waits).fetchone() == (1,), 60, "the slot's creation")
        assert capture.stop() == 0
    assert connection.execute(
        "select count(*) from pg_replication_slots where slot_name like %s", (f"%{scene.prefix}",)
    ).fetchone() == (0,)
