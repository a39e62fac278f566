"""A standby as the source: its snapshots do not tell which transactions they see, so what is unsure is not written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.capturing import CaptureScene, Connection, dsn_at
from support.postgres import VERSION, Postgres, Standby
from support.waiting import wait_until

from suiro.registry import RegistryProcess

pytestmark = pytest.mark.skipif(VERSION < 16, reason="slots are made on standbys since Postgres 16")

ROWS = 300
TABLE = f"""
create table t (k int primary key, v int, doc text);
alter table t alter doc set storage external;
insert into t select g, 0, repeat(md5(g::text), 80) from generate_series(1, {ROWS}) g
"""


@pytest.fixture
def scene(
    suiro_node: Any,
    registry: RegistryProcess,
    standby: Standby,
    connection: Connection,
    prefix: str,
    tmp_path: Path,
) -> Iterator[CaptureScene]:
    """The capture reads the standby, `connection` leads to the primary."""
    connection.execute(TABLE.encode())
    connection.execute(f"create publication suiro_{prefix} for table t".encode())
    standby.make_slot(f"suiro_{prefix}", prefix)
    dsn = dsn_at(standby.dsn, prefix)
    made = CaptureScene(suiro_node.bootstrap_servers, registry.url, dsn, prefix, tmp_path / "capture.log")
    yield made
    made.close()


def wait_read(scene: CaptureScene, standby: Standby, ranges: int = 1) -> None:
    """Until so many ranges of the table were read, written or not."""
    wait_until(lambda: standby.said().count("COPY (SELECT") >= ranges, 60, "a range that is read")


@pytest.mark.parametrize("spared", [False, True], ids=["whole", "TOAST spared"])
def test_a_transaction_that_a_standbys_snapshot_may_not_see(
    scene: CaptureScene, connection: Connection, standby: Standby, postgres: Postgres, spared: bool
) -> None:
    """Its number is lower than that of one the snapshot sees, its commit is not replayed: the row that is read is older
    than its change, and the stream gives the change first."""
    change = "v = 1" if spared else "v = 1, doc = repeat(md5((-k)::text), 80)"
    before = standby.said().count("COPY (SELECT")
    with psycopg.connect(postgres.dsn, dbname=scene.prefix) as other:
        other.execute(f"update t set {change} where k % 2 = 0".encode())
        connection.execute("update t set v = 2 where k = 1")
        standby.wait_replayed()
        with standby.paused():
            other.commit()
            connection.execute("update t set k = -k where k = 100")
            standby.wait_received()
            capture = scene.start(tables="t")
            wait_read(scene, standby, before + 1)
    capture.ready()
    scene.wait_same(connection, "t", "t", ["k"])
    newest: dict[bytes, int] = {}
    for record in scene.topics.records(f"{scene.prefix}.public.t"):
        if record["value"] is not None:
            value = scene.topics.decoded(record["value"])["v"]
            assert value >= newest.get(record["key"], 0), "an older row behind a newer one"
            newest[record["key"]] = value
    connection.execute("update t set v = 3 where k % 3 = 0")
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0


def test_a_logical_message_of_no_transaction_before_a_large_part_of_the_log(
    scene: CaptureScene, connection: Connection, standby: Standby
) -> None:
    """Nothing commits behind it that a standby's capture gets, so the position can move only by the message itself."""
    connection.execute("select pg_logical_emit_message(false, 'other', 'x')")
    connection.execute("create table filler (v text); alter table filler alter v set storage external")
    connection.execute("insert into filler select repeat(md5(g::text), 1000) from generate_series(1, 100) g")
    standby.wait_replayed()
    capture = scene.started(tables="t", catch_up_mb=1)
    connection.execute("update t set v = 3 where k % 3 = 0")
    scene.wait_same(connection, "t", "t", ["k"])
    assert capture.stop() == 0
