"""A captured topic is deleted. Its rows are in the table still, so it is written again as a whole."""

from __future__ import annotations

import psycopg
import pytest
from support.capturing import DOCS, ROWS, CaptureScene, Connection, dsn_of, make_slot, records
from support.postgres import Postgres
from support.waiting import wait_until

from suiro.client import LATEST, NewTopic
from suiro.connect import request_snapshot


@pytest.mark.parametrize("is_made_again", [False, True], ids=["deleted", "made again by others"])
def test_a_topic_that_was_deleted_is_written_again(
    scene: CaptureScene, connection: Connection, is_made_again: bool
) -> None:
    connection.execute("create table t (k int primary key, v int)")
    connection.execute("insert into t select g, 0 from generate_series(1, 100) g")
    capture = scene.started(tables="t")
    assert capture.stop() == 0
    topic = f"{scene.prefix}.public.t"
    scene.topics.client.delete_topics([topic])
    if is_made_again:  # as a consumer's question does, where brokers create topics by themselves
        scene.topics.client.create_topics([NewTopic(topic, 1)])
    capture = scene.started(tables="t")
    connection.execute("update t set v = 1 where k <= 10")
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


def test_a_topic_is_deleted_while_its_table_is_read_again(
    scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    """At the end, keys that were last written before go. In the new topic these offsets are those of what was read."""
    connection.execute(DOCS.encode())
    make_slot(connection, scene)
    capture = scene.started(tables="t", chunk_rows=40)
    scene.wait_same(connection, "t", "t", ["k"])
    topic, client = f"{scene.prefix}.public.t", scene.topics.client
    end = {(topic, 0): LATEST}
    before = client.list_offsets(end)[topic, 0].offset
    request_snapshot(dsn_of(postgres, scene.prefix), topic_prefix=scene.prefix, table="t")
    wait_until(lambda: client.list_offsets(end)[topic, 0].offset > before, 60, "the first rows again")
    with psycopg.connect(postgres.dsn, dbname=scene.prefix) as other:
        other.execute("lock table t in access exclusive mode")
        assert len(records(scene)) < 2 * ROWS, "too late: the table was read"
        client.delete_topics([topic])
        client.create_topics([NewTopic(topic, 1)])
    scene.wait_same(connection, "t", "t", ["k"])
    connection.execute("update t set v = 1 where k <= 10")
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


def test_a_topic_in_which_rows_expire_is_reported(scene: CaptureScene, connection: Connection) -> None:
    """A broker creates it so for a reader that comes first: rows that do not change were gone after seven days."""
    connection.execute("create table t (k int primary key); create table u (k int primary key)")
    topic, client = f"{scene.prefix}.public.t", scene.topics.client
    client.create_topics([NewTopic(topic, 1, configs={"cleanup.policy": "delete"})])
    capture = scene.started(tables="t,u")
    assert f"expire in topic {topic}, which" in capture.said()
    assert capture.stop() == 0
