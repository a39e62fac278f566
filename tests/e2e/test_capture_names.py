"""Tables whose names Kafka, or a dot between two names, cannot tell apart."""

from __future__ import annotations

import pytest
from support.capturing import CaptureScene, Connection, records
from support.waiting import wait_until

from suiro.connect import request_snapshot


def test_two_tables_of_one_topic_are_refused(scene: CaptureScene, connection: Connection) -> None:
    connection.execute(
        'create table "注文" (k int primary key, v text); create table "顧客" (k int primary key, v text);'
        """insert into "注文" values (1, 'order'); insert into "顧客" values (1, 'customer')"""
    )
    capture = scene.start()
    assert capture.ended() != 0
    assert f'"public"."注文" and "public"."顧客" would both be topic {scene.prefix}.public.__' in capture.said()
    assert records(scene, "__") == []
    one = scene.started(tables="注文")
    scene.wait_same(connection, "__", '"注文"', ["k"])
    assert one.stop() == 0


def test_a_second_table_of_a_topic_is_refused_before_its_first_record(
    scene: CaptureScene, connection: Connection
) -> None:
    connection.execute("""create table "a b" (k int primary key, v text); insert into "a b" values (1, 'first')""")
    capture = scene.start(heartbeat=60)  # the stream comes to it before the catalogue is looked at
    capture.ready()
    scene.wait_same(connection, "a_b", '"a b"', ["k"])
    with connection.transaction():
        connection.execute("create table a_b (k int primary key, v text)")
        connection.execute("insert into a_b values (1, 'second')")
    assert capture.ended() != 0
    assert "would both be topic" in capture.said()
    scene.wait_same(connection, "a_b", '"a b"', ["k"])


@pytest.mark.parametrize(("schema", "table"), [("s.one", "t"), ("s", "one.t"), ("s.one", "t.two")])
def test_names_may_have_dots(scene: CaptureScene, connection: Connection, schema: str, table: str) -> None:
    connection.execute(f'create schema "{schema}"; create table "{schema}"."{table}" (k int primary key)'.encode())
    connection.execute(f'insert into "{schema}"."{table}" select generate_series(1, 100)'.encode())
    capture = scene.started()
    full_name = f"{schema}.{table}"
    request_snapshot(scene.options["dsn"], topic_prefix=scene.prefix, table=full_name)
    wait_until(
        lambda: capture.said().count(f"table {full_name} is read") == 2 or capture.process.poll() is not None,
        60,
        "the table to be read beside the stream",
    )
    assert capture.stop() == 0, capture.said()
    assert len({record["key"] for record in scene.topics.records(f"{scene.prefix}.{full_name}")}) == 100
