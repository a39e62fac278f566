"""Rows whose TOASTed values an update did not send where the topic has none to take: read by their keys, never lost."""

from __future__ import annotations

import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from support.capturing import (
    DOCS,
    ROWS,
    Capture,
    CaptureScene,
    Connection,
    in_the_middle,
    killed,
    make_slot,
    records,
)
from support.postgres import Postgres, bring_standby_back, commits_that_wait, standby_away
from support.share import one_of
from support.waiting import wait_until

from suiro.connect import request_snapshot


@pytest.mark.parametrize("keys", one_of(3, ["k int", 'k text collate "C"', 'k char(8) collate "C"']))
def test_keys_that_move_into_ranges_already_read_arrive(
    scene: CaptureScene, connection: Connection, postgres: Postgres, keys: str
) -> None:
    connection.execute(DOCS.replace("k int", keys).encode())
    make_slot(connection, scene)
    capture = scene.start(tables="t", chunk_rows=100)
    # As numbers and as text in this collation the new keys come before all others.
    in_the_middle(
        scene,
        postgres,
        "update t set k = '-' || k where k::int > 1000" if "int" not in keys else "update t set k = -k where k > 1000",
    )
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    connection.execute("update t set v = v + 1")  # and the values are known from now on
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


def test_a_kill_does_not_forget_what_is_owed(scene: CaptureScene, connection: Connection, postgres: Postgres) -> None:
    connection.execute(DOCS.encode())
    make_slot(connection, scene)
    capture = scene.start(tables="t", chunk_rows=100)
    in_the_middle(scene, postgres, "update t set k = -k where k > 1000")
    wait_until(lambda: any(header(one, "op") == "delete" for one in records(scene)), 60, "the moved keys")
    killed(scene, capture, connection)
    for _ in range(3):
        capture = scene.start(tables="t", chunk_rows=100)
        before = len(records(scene))
        # On a busy machine a capture may read the whole rest while these lines look.
        wait_until(
            lambda before=before, capture=capture: len(records(scene)) > before or capture.is_ready,
            60,
            "more rows",
        )
        killed(scene, capture, connection)
    capture = scene.started(tables="t")
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


def header(record: dict[str, Any], name: str) -> str:
    return next(one["value"].decode() for one in record["headers"] if one["key"] == name)


def test_more_than_may_be_owed_begins_the_table_again(
    scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    connection.execute(DOCS.encode())
    make_slot(connection, scene)
    capture = scene.start(tables="t", chunk_rows=100, owed_keys_max=50)
    in_the_middle(scene, postgres, "update t set k = -k where k > 1000")
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    assert "more than 50 rows of public.t" in capture.said()
    assert capture.stop() == 0


def test_a_column_that_is_renamed_in_the_middle_of_a_range(
    scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    """The table begins again; the range that waits for its mark does not count for the new beginning."""
    connection.execute(DOCS.encode())
    make_slot(connection, scene)
    capture = scene.start(tables="t", chunk_rows=100)
    in_the_middle(
        scene,
        postgres,
        "alter table t rename note to remark; update t set k = -k where k % 3 = 0; update t set v = -1 where k % 5 = 0",
        rows=300,
    )
    connection.execute("update t set v = v + 1 where k % 7 = 0")
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


@pytest.mark.parametrize("how", one_of(2, ["topic deleted", "never read"]))
def test_a_row_that_the_topic_does_not_have_is_read(scene: CaptureScene, connection: Connection, how: str) -> None:
    connection.execute(DOCS.encode())
    never = {"snapshot": "never"} if how == "never read" else {}
    capture = scene.started(tables="t", partitions=1, **never)
    if how == "topic deleted":
        scene.wait_same(connection, "t", "t", ["k"])
        killed(scene, capture, connection)
        scene.topics.client.delete_topics([f"{scene.prefix}.public.t"])
        capture = scene.started(tables="t", partitions=1)
    connection.execute("update t set v = 1 where k % 10 = 0")
    connection.execute("update t set k = -k where k % 100 = 0")
    # A topic that was deleted is written again from its table.
    changed = "t" if how == "topic deleted" else "(select * from t where abs(k) % 10 < {}) changed"
    scene.wait_same(connection, "t", changed.format(1), ["k"])
    killed(scene, capture, connection)
    connection.execute("update t set v = 2 where k % 10 = 1")
    capture = scene.started(tables="t", **never)
    connection.execute("update t set note = 'short' where k % 10 = 1")
    scene.wait_same(connection, "t", changed.format(2), ["k"])
    assert capture.process.poll() is None
    assert capture.stop() == 0


def test_advice_of_too_much_that_is_owed_is_true(scene: CaptureScene, connection: Connection) -> None:
    """Each choice that the error gives."""
    connection.execute(DOCS.encode())
    capture = scene.started(tables="t", snapshot="never", owed_keys_max=10)
    connection.execute("update t set v = 1 where k <= 20")
    assert capture.ended() == 1
    assert "--owed-keys-max" in capture.said()
    assert "--snapshot new" in capture.said()
    capture = scene.start(tables="t", snapshot="never", owed_keys_max=20)
    scene.wait_same(connection, "t", "(select * from t where k <= 20) changed", ["k"])
    connection.execute("update t set v = 1 where k between 21 and 50")
    assert capture.ended() == 1
    capture = scene.started(tables="t", snapshot="new", owed_keys_max=10)
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


def test_no_state_that_never_was(scene: CaptureScene, connection: Connection, postgres: Postgres) -> None:
    """A transaction that touches unread rows twice: no record joins an early value with a later one."""
    connection.execute(DOCS.encode())
    make_slot(connection, scene)
    capture = scene.start(tables="t", chunk_rows=100)
    in_the_middle(
        scene,
        postgres,
        "update t set v = 1, doc = repeat('a', 3000) where k % 50 = 7; update t set v = 2 where k % 2 = 1;"
        " update t set v = 3, doc = repeat('b', 3000) where k % 2 = 1; update t set v = 4 where k % 4 = 1",
    )
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    for record in records(scene):
        if record["value"] is not None:
            row = scene.topics.decoded(record["value"])
            first = row["doc"][0] if len(set(row["doc"])) == 1 else "-"
            allowed = {0: "-", 1: "a", 2: "-a", 3: "b", 4: "b"}[row["v"]]
            assert first in allowed, (row["k"], row["v"], first)
    assert capture.stop() == 0


@pytest.mark.parametrize("begins", one_of(2, ["killed in the middle", "slot made first"]))
def test_no_record_goes_back_in_time_while_a_synchronous_standby_is_away(
    scene: CaptureScene, connection: Connection, postgres: Postgres, begins: str
) -> None:
    """The stream gives a commit that no snapshot sees; a session that began later knows nothing of it."""
    connection.execute(DOCS.encode())
    capture: Capture | None = None
    make_slot(connection, scene)
    if begins == "killed in the middle":
        capture = scene.start(tables="t", chunk_rows=100)
        in_the_middle(scene, postgres, "select 1")
    with (
        ThreadPoolExecutor(1) as beside,
        psycopg.connect(postgres.dsn, dbname=scene.prefix, autocommit=True) as other,
        standby_away(connection),
    ):
        waiting = beside.submit(other.execute, b"update t set v = 1, doc = 'new' where k % 2 = 0")
        wait_until(lambda: commits_that_wait(connection) == 1, 60, "a commit that waits")
        if capture is None:
            # It begins behind the commit: the stream never gives it.
            advance = "select pg_replication_slot_advance(%s, pg_current_wal_flush_lsn())"
            connection.execute(advance, (f"suiro_{scene.prefix}",))
        else:
            wait_until(lambda: any(header(one, "op") == "update" for one in records(scene)), 60, "the commit")
            killed(scene, capture, connection)
        capture = started = scene.start(tables="t", chunk_rows=100)
        wait_until(lambda: "are read once" in started.said(), 60, "that it waits")
        assert not any(event["event"] == "ready" for event in capture.events)
        bring_standby_back(connection)
        waiting.result(60)
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    newest: dict[bytes, int] = {}
    for record in records(scene):
        value = scene.topics.decoded(record["value"])["v"]
        assert value >= newest.get(record["key"], 0), "an older row behind a newer one"
        newest[record["key"]] = value
    assert capture.stop() == 0


def test_the_table_that_owes_most_is_read_not_the_one_that_was_one_too_many(
    scene: CaptureScene, connection: Connection
) -> None:
    connection.execute(DOCS.encode())
    connection.execute(DOCS.replace("table t", "table u").replace("into t", "into u").encode())
    capture = scene.started(tables="public.t,public.u", snapshot="never", owed_keys_max=10)
    with connection.transaction():
        connection.execute("update t set v = 1 where k <= 10")
        connection.execute("update u set v = 1 where k = 1")
    assert capture.ended() == 1
    assert "more than 10 rows of public.t untouched" in capture.said()


@pytest.mark.parametrize("how", one_of(2, ["open", "prepared"]))
def test_who_holds_a_snapshot_up_is_named(
    scene: CaptureScene, connection: Connection, postgres: Postgres, how: str
) -> None:
    connection.execute(DOCS.encode())
    make_slot(connection, scene)
    with psycopg.connect(
        postgres.dsn, dbname=scene.prefix, application_name="the night's job", autocommit=True
    ) as other:
        other.execute("begin")
        other.execute("update t set v = 1 where k = 1")
        if how == "prepared":
            other.execute("prepare transaction 'half'")
        capture = scene.start(tables="t", metrics="127.0.0.1:0")
        times = 2 if how == "prepared" else 1
        wait_until(lambda: capture.said().count("are read once") >= times, 90, "that it waits, and says so")
        pid = other.info.backend_pid
        named = f'backend {pid} (application "the night\'s job"' if how == "open" else "ROLLBACK PREPARED 'half'"
        assert named in capture.said()
        found = re.search(r"metrics: (http://\S+)", capture.said())
        assert found is not None
        with urllib.request.urlopen(found[1], timeout=30) as response:
            waited = re.search(r"^suiro_capture_visibility_wait_seconds\{.*\} (\S+)$", response.read().decode(), re.M)
        assert waited is not None
        assert float(waited[1]) >= 5
        other.execute("commit" if how == "open" else "commit prepared 'half'")
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


@pytest.mark.soak  # CI's time
def test_a_table_that_is_dropped_while_rows_of_it_are_owed(
    scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    connection.execute(DOCS.encode())
    connection.execute("create table u (k int primary key)")
    make_slot(connection, scene)
    capture = scene.start(chunk_rows=100)
    in_the_middle(scene, postgres, "update t set k = -k where k > 1000; drop table t")
    capture.ready()
    connection.execute("insert into u values (1)")
    scene.wait_same(connection, "u", "u", ["k"])
    assert capture.stop() == 0


@pytest.mark.soak  # CI's time
def test_read_again_as_asked_it_stays_current(scene: CaptureScene, connection: Connection, postgres: Postgres) -> None:
    """The topic was whole: rows that are not read again yet are completed from it at once."""
    connection.execute(DOCS.encode())
    capture = scene.started(tables="t", chunk_rows=100)
    before = len(records(scene))
    request_snapshot(scene.options["dsn"], topic_prefix=scene.prefix, table="t")
    wait_until(lambda: len(records(scene)) > before, 60, "the table again")
    with psycopg.connect(postgres.dsn, dbname=scene.prefix) as other:
        other.execute("lock table t in access exclusive mode")
        assert len(records(scene)) < before + ROWS
        other.execute("update t set v = 1 where k = %s", (ROWS,))
    wait_until(lambda: any(header(one, "op") == "update" for one in records(scene)), 60, "the update")
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0
