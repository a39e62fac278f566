"""What a capture meets on Postgres's side (partitions, filters, a slot that is lost while it runs, an encoding that
says nothing), and Apache Kafka in place of the node."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.capturing import CaptureScene, Connection, dsn_of, make_slot
from support.postgres import VERSION, Postgres, Standby
from support.waiting import wait_until

from suiro.connect import CaptureOptions, PostgresCapture
from suiro.errors import ConfigError
from suiro.registry import RegistryProcess


def test_a_partitioned_table_is_one_topic(scene: CaptureScene, connection: Connection) -> None:
    connection.execute("create table t (id int, day date, v text, primary key (id, day)) partition by range (day)")
    connection.execute("create table t_1 partition of t for values from ('2026-01-01') to ('2026-07-01')")
    connection.execute("create table t_2 partition of t for values from ('2026-07-01') to ('2027-01-01')")
    connection.execute("insert into t select g, date '2026-01-01' + g % 360, 'old' from generate_series(1, 3000) g")
    capture = scene.start(tables="t", chunk_rows=500)
    assert capture.ready()["topics"] == [f"{scene.prefix}.public.t"]
    connection.execute("update t set day = '2026-12-01' where id = 7")  # into the other partition
    connection.execute("update t set v = 'new' where id % 100 = 1")
    connection.execute("delete from t_1 where id % 100 = 2")  # by the partition's own name
    connection.execute("create table t_3 partition of t for values from ('2027-01-01') to ('2028-01-01')")
    connection.execute("insert into t values (9000, '2027-05-05', 'in a partition made later')")
    scene.wait_same(connection, "t", "t", ["id", "day"])
    assert capture.stop() == 0


def test_rows_of_a_table_that_inherits_stay_in_its_own_topic(scene: CaptureScene, connection: Connection) -> None:
    connection.execute("create table t (id int primary key, v text)")
    connection.execute("create table child (primary key (id)) inherits (t)")
    connection.execute("insert into t select g, 'parent' from generate_series(1, 300) g")
    connection.execute("insert into child select g, 'child' from generate_series(200, 500) g")
    capture = scene.start(tables="t,child", chunk_rows=100)
    capture.ready()
    connection.execute("update t set v = v || ' changed' where id % 7 = 0")  # in both
    scene.wait_same(connection, "t", "only t", ["id"])
    scene.wait_same(connection, "child", "child", ["id"])
    assert capture.stop() == 0


@pytest.mark.skipif(VERSION < 15, reason="publications have row filters and column lists since Postgres 15")
def test_filter_and_columns_of_a_publication_hold_for_snapshot_and_stream(
    scene: CaptureScene, connection: Connection
) -> None:
    connection.execute("create table t (id int primary key, secret text, v int)")
    connection.execute("create publication few for table t (id, v) where (id < 100)")
    connection.execute("insert into t select g, 'hidden', g from generate_series(1, 200) g")
    capture = scene.start(publication="few", chunk_rows=30)
    assert capture.ready()["rows"] == 99
    connection.execute("update t set v = -1 where id in (5, 150)")
    connection.execute("update t set id = 500 where id = 6")  # out of what is published
    connection.execute("update t set id = 60 where id = 160 and not exists (select from t where id = 60)")
    connection.execute("delete from t where id in (7, 170)")
    connection.execute("insert into t values (0, 'hidden', 0), (1000, 'hidden', 0)")
    scene.wait_same(connection, "t", "(select id, v from t where id < 100) published", ["id"])
    records = scene.topics.records(f"{scene.prefix}.public.t")
    assert not any(b"hidden" in (record["value"] or b"") for record in records)
    assert capture.stop() == 0


def test_a_deferrable_primary_key_is_no_key_of_records(scene: CaptureScene, connection: Connection) -> None:
    """Two rows can have the same for a while. The whole row is the key, in the snapshot and in the stream."""
    connection.execute("create table t (id int primary key deferrable initially deferred, v int)")
    connection.execute("alter table t replica identity full")
    connection.execute("insert into t select g, g from generate_series(1, 100) g")
    capture = scene.start(tables="t")
    capture.ready()
    connection.execute("update t set v = 1 where id <= 10")
    connection.execute("update t set id = case id when 20 then 21 else 20 end where id in (20, 21)")
    connection.execute("delete from t where id > 90")
    scene.wait_same(connection, "t", "t", ["id", "v"])
    assert capture.stop() == 0


def test_a_table_that_is_published_again_is_read_again(scene: CaptureScene, connection: Connection) -> None:
    """The stream has nothing of what happened in between, however short that was."""
    connection.execute("create table t (id int primary key, v int)")
    connection.execute("create table other (id int primary key, v int)")
    connection.execute("insert into t select g, 0 from generate_series(1, 100) g")
    capture = scene.start(tables="t,other")
    capture.ready()
    publication = f"suiro_{scene.prefix}"
    # In one transaction each: the capture, which looks now and then, ends if it finds the table taken out.
    with connection.transaction():
        connection.execute(f"alter publication {publication} drop table t".encode())
        connection.execute("update t set v = 1 where id <= 10")
        connection.execute("delete from t where id > 90")
        connection.execute(f"alter publication {publication} add table t".encode())
    scene.wait_same(connection, "t", "t", ["id"])
    published = "insert, update, delete, truncate"
    with connection.transaction():
        connection.execute(f"alter publication {publication} set (publish = 'insert')".encode())
        connection.execute("update t set v = 2 where id <= 20")
        connection.execute("delete from t where id > 80")
        connection.execute(f"alter publication {publication} set (publish = '{published}')".encode())
    scene.wait_same(connection, "t", "t", ["id"])
    assert capture.stop() == 0


def test_a_table_that_was_not_logged_for_a_while_is_read_again(scene: CaptureScene, connection: Connection) -> None:
    """As for a bulk load. A publication of all tables leaves it out meanwhile."""
    connection.execute("create table t (id int primary key, v int)")
    connection.execute("insert into t select g, 0 from generate_series(1, 100) g")
    capture = scene.start()
    capture.ready()
    connection.execute("alter table t set unlogged")
    connection.execute("create table other (id int primary key)")
    topic = f"{scene.prefix}.public.other"
    wait_until(lambda: scene.topics.client.metadata([topic]).get(topic), 120, "a look at the catalogue")
    connection.execute("update t set v = 1 where id <= 10")
    connection.execute("delete from t where id > 90")
    connection.execute("alter table t set logged")
    scene.wait_same(connection, "t", "t", ["id"])
    assert capture.stop() == 0


def test_lag_above_the_threshold_is_said_and_served(scene: CaptureScene, connection: Connection) -> None:
    connection.execute("create table t (id int primary key)")
    capture = scene.start(tables="t", lag_alert_mb=0, metrics="127.0.0.1:0")
    capture.ready()
    connection.execute("insert into t values (1)")
    wait_until(lambda: any(event["event"] == "lag_alert" for event in capture.events), 60, "the alert")
    alert = next(event for event in capture.events if event["event"] == "lag_alert")
    assert alert["slot"] == f"suiro_{scene.prefix}"
    assert alert["lag_bytes"] > 0
    found = re.search(r"metrics: (http://\S+)", capture.said())
    assert found is not None
    with urllib.request.urlopen(found[1], timeout=30) as response:
        metrics = response.read().decode()
    assert re.search(r"^suiro_capture_lag_alert\{.*\} [01]\.0$", metrics, re.MULTILINE)
    assert re.search(r"^suiro_capture_lag_bytes\{", metrics, re.MULTILINE)
    assert capture.stop() == 0


def test_a_database_without_an_encoding_is_refused(
    suiro_node: Any, registry: RegistryProcess, postgres: Postgres, prefix: str
) -> None:
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute(f"create database {prefix} encoding 'SQL_ASCII' locale 'C' template template0".encode())
    options = CaptureOptions(
        dsn=dsn_of(postgres, prefix),
        bootstrap_servers=suiro_node.bootstrap_servers,
        registry=registry.url,
        topic_prefix=prefix,
    )
    with pytest.raises(ConfigError, match=r"SQL_ASCII.*UTF8"):
        PostgresCapture(options).run()


@pytest.mark.soak  # CI's time: it needs a server of its own
def test_a_slot_that_is_lost_while_it_runs_ends_the_capture_and_a_new_snapshot_goes_on(
    suiro_node: Any, registry: RegistryProcess, prefix: str, tmp_path: Path
) -> None:
    """`max_slot_wal_keep_size`: a walsender that falls behind is ended and its slot invalidated."""
    server = Postgres(tmp_path / "postgres")
    scene = CaptureScene(suiro_node.bootstrap_servers, registry.url, server.dsn, prefix, tmp_path / "capture.log")
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            for setting in (
                "max_slot_wal_keep_size = '1MB'",
                "min_wal_size = '32MB'",
                "max_wal_size = '32MB'",
            ):
                connection.execute(f"alter system set {setting}".encode())
            connection.execute("select pg_reload_conf()")
            connection.execute("create table t (id int primary key, v int)")
            connection.execute("insert into t select g, 0 from generate_series(1, 100) g")
            capture = scene.start(tables="t")
            capture.ready()
            scene.wait_same(connection, "t", "t", ["id"])
            # An open transaction holds the slot's restart_lsn back, however well the capture keeps up.
            with psycopg.connect(server.dsn) as holder:
                holder.execute("insert into t values (1000, 0)")

                def ended() -> bool:
                    connection.execute("create table if not exists filler (v text)")
                    connection.execute(
                        "insert into filler select repeat(md5(g::text), 50) from generate_series(1, 10000) g"
                    )
                    connection.execute("select pg_switch_wal()")
                    connection.execute("checkpoint")
                    return capture.process.poll() is not None

                wait_until(ended, 120, "the capture's end")
            assert capture.process.returncode == 1, capture.said()[-2000:]
            said = capture.said()
            assert "--snapshot new" in said, said[-2000:]
            assert "suiro_" in said
            assert "lost to this capture" in said
            again = scene.start(tables="t")
            assert again.ended() == 1
            connection.execute("delete from t where id <= 10")
            connection.execute("update t set v = 1 where id > 90")
            capture = scene.start(tables="t", snapshot="new")
            capture.ready()
            connection.execute("insert into t values (2000, 2)")
            scene.wait_same(connection, "t", "t", ["id"])
            assert capture.stop() == 0
    finally:
        scene.close()
        server.stop()


OLDER = 16  # than 18, and among the servers that the tests always have


@pytest.mark.parametrize("is_second", [False, True], ids=["first start", "after one that failed"])
def test_a_slot_that_is_older_than_the_publication(
    suiro_node: Any, registry: RegistryProcess, prefix: str, tmp_path: Path, is_second: bool
) -> None:
    """The guide makes the slot first, for failover. Postgres before 18 decodes no change from before the publication,
    also of a transaction that commits later: the capture ended, at each start again."""
    server = Postgres(tmp_path / "postgres", OLDER)
    scene = CaptureScene(suiro_node.bootstrap_servers, registry.url, server.dsn, prefix, tmp_path / "capture.log")
    try:
        with (
            psycopg.connect(server.dsn, autocommit=True) as connection,
            psycopg.connect(server.dsn) as other,
        ):
            connection.execute("create table t (id int primary key, v int)")
            make_slot(connection, scene)
            connection.execute("insert into t select g, 0 from generate_series(1, 100) g")
            if is_second:  # it creates the publication
                connection.execute('create table a_b (id int primary key); create table "a b" (id int primary key)')
                assert scene.start(tables="t,a_b,a b").ended() != 0
                assert "a_b" in scene.captures[-1].said()
            other.execute("insert into t values (1000, 0)")
            capture = scene.start(tables="t")
            publication = "select count(*) from pg_publication"
            wait_until(lambda: connection.execute(publication).fetchone() == (1,), 60, "the publication")
            connection.execute("update t set v = 1 where id <= 10")
            other.commit()
            capture.ready()
            connection.execute("delete from t where id = 1000")
            scene.wait_same(connection, "t", "t", ["id"])
            assert capture.stop() == 0
    finally:
        scene.close()
        server.stop()


@pytest.mark.soak  # CI's time: two servers of its own
@pytest.mark.skipif(VERSION < 17, reason="slots are kept on standbys since Postgres 17")
def test_after_a_promotion_it_goes_on_at_the_standby(
    suiro_node: Any, registry: RegistryProcess, prefix: str, tmp_path: Path
) -> None:
    """As the guide says: a slot with failover, a standby that keeps it, and a DSN of both."""
    primary = Postgres(tmp_path / "primary")
    standby = Standby(primary, tmp_path / "standby", slot=f"suiro_{prefix}")
    both = f"{primary.dsn},{standby.host}&target_session_attrs=read-write"
    scene = CaptureScene(suiro_node.bootstrap_servers, registry.url, both, prefix, tmp_path / "capture.log")
    try:
        with psycopg.connect(primary.dsn, autocommit=True) as connection:
            connection.execute("create table t (id int primary key, v int)")
            connection.execute("insert into t select g, 0 from generate_series(1, 1000) g")
            capture = scene.start(tables="t")
            capture.ready()
            connection.execute("update t set v = 1 where id <= 100")
            scene.wait_same(connection, "t", "t", ["id"])
            wait_until(standby.has_slot, 90, "the slot on the standby")
            connection.execute("delete from t where id > 900")
            scene.wait_same(connection, "t", "t", ["id"])
        primary.kill()
        standby.promote()
        with psycopg.connect(standby.dsn, autocommit=True) as connection:
            assert connection.execute("select count(*) from t").fetchone() == (900,)
            connection.execute("update t set v = 2 where id <= 10")
            scene.wait_same(connection, "t", "t", ["id"])
            # Nothing was read again and nothing twice: 1,000 rows, 100 updates, 100 deletes, 10 updates.
            assert len(scene.topics.records(f"{prefix}.public.t")) == 1_210
        assert capture.process.poll() is None, capture.said()[-3000:]
        assert capture.stop() == 0
    finally:
        scene.close()
        standby.stop()
        primary.stop()


@pytest.mark.soak  # CI's time: two servers of its own
@pytest.mark.skipif(VERSION < 17, reason="slots are kept on standbys since Postgres 17")
def test_a_standby_that_was_promoted_without_what_was_captured_is_refused(
    suiro_node: Any, registry: RegistryProcess, prefix: str, tmp_path: Path
) -> None:
    """Without `synchronized_standby_slots`. Its log has grown beyond the position before the capture comes back."""
    primary = Postgres(tmp_path / "primary")
    standby = Standby(primary, tmp_path / "standby", slot=f"suiro_{prefix}")
    both = f"{primary.dsn},{standby.host}&target_session_attrs=read-write"
    scene = CaptureScene(suiro_node.bootstrap_servers, registry.url, both, prefix, tmp_path / "capture.log")
    try:
        with psycopg.connect(primary.dsn, autocommit=True) as connection:
            connection.execute("create table t (id int primary key, v int)")
            connection.execute("insert into t select g, 0 from generate_series(1, 1000) g")
            capture = scene.start(tables="t")
            capture.ready()
            wait_until(standby.has_slot, 90, "the slot on the standby")
            standby.stop()
            connection.execute("alter system reset synchronized_standby_slots")
            connection.execute("select pg_reload_conf()")
            connection.execute("update t set v = 1 where id <= 100")
            scene.wait_same(connection, "t", "t", ["id"])
            assert capture.stop() == 0
        primary.kill()
        standby.start()
        standby.promote()
        with psycopg.connect(standby.dsn, autocommit=True) as connection:
            connection.execute("update t set v = 2 where id > 900")
            connection.execute(
                "create table filler as select repeat(md5(g::text), 50) from generate_series(1, 20000) g"
            )
            again = scene.start(tables="t")
            assert again.ended() == 1
            assert "timeline 1 ended at" in again.said(), again.said()[-2000:]
            assert "--snapshot new" in again.said()
            capture = scene.start(tables="t", snapshot="new")
            capture.ready()
            scene.wait_same(connection, "t", "t", ["id"])
        assert capture.stop() == 0
    finally:
        scene.close()
        standby.stop()
        primary.stop()


@pytest.mark.soak  # CI's time
def test_into_apache_kafka(kafka: Any, postgres: Postgres, connection: Connection, prefix: str, tmp_path: Path) -> None:
    """Snapshot, stream, a kill in the middle and SQL blocks: as into the node."""
    registry = RegistryProcess.start(kafka.bootstrap_servers, log=tmp_path / "registry.log")
    scene = CaptureScene(
        kafka.bootstrap_servers, registry.url, dsn_of(postgres, prefix), prefix, tmp_path / "capture.log"
    )
    try:
        connection.execute("create table t (id int primary key, v int, big text)")
        connection.execute(
            "insert into t select g, 0, string_agg(md5((g * 1000 + n)::text), '') from generate_series(1, 500) g,"
            " generate_series(1, 100) n group by g"
        )
        connection.execute("alter table t alter big set storage external")
        capture = scene.start(tables="t", chunk_rows=50, partitions=3)
        wait_until(lambda: scene.topics.records(f"{prefix}.public.t"), 60, "the first rows")
        capture.kill()
        connection.execute("delete from t where id % 10 = 3")
        capture = scene.start(tables="t", chunk_rows=50, partitions=3)
        capture.ready()
        connection.execute("update t set v = v + 1")  # big stays untouched where it is TOASTed
        with connection.transaction():
            connection.execute("update t set id = id + 10000 where id % 10 = 4")
        with connection.transaction(force_rollback=True):
            connection.execute("delete from t")
        scene.wait_same(connection, "t", "t", ["id"])
        capture.kill()
        for _ in range(4):
            connection.execute("update t set v = v + 1, big = repeat(big, 2) where length(big) < 40000")
        capture = scene.start(tables="t", catch_up_mb=1)
        connection.execute("truncate t")
        connection.execute("insert into t values (1, 1, 'last')")
        scene.wait_same(connection, "t", "t", ["id"])
        assert capture.stop() == 0, capture.said()[-3000:]
    finally:
        scene.close()
        registry.stop()
