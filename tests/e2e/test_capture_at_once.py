"""A first snapshot, a table that is read again as requested, and one that is added, all at once, with kills between."""

from __future__ import annotations

import os
import random

import pytest
from support.capturing import DOCS, ROWS, Capture, CaptureScene, Connection, make_slot
from support.waiting import wait_until

from suiro.connect import request_snapshot

SEEDS = int(os.environ.get("SUIRO_SEEDS", "20"))
PATIENCE_S = 300.0
TABLES = ("t", "u", "added")
FEW_ROWS = 400


def table(name: str) -> bytes:
    return DOCS.replace(" t ", f" {name} ").replace(f", {ROWS})", f", {FEW_ROWS})").encode()


def go(scene: CaptureScene, connection: Connection, seed: int) -> None:
    draw = random.Random(seed)
    connection.execute(table("t") + b";" + table("u"))
    if draw.random() < 0.5:
        make_slot(connection, scene)
    steps = ["request", "request", "add", "truncate", "change", "change", "change"]
    draw.shuffle(steps)
    there = ["t", "u"]
    capture = start(scene, draw)
    for step in steps:
        further(scene, capture, draw.choice((1, 30, 150)))
        if step == "request":
            name = draw.choice(there)
            request_snapshot(scene.options["dsn"], topic_prefix=scene.prefix, table=name)
        elif step == "add":
            connection.execute(table("added"))
            there.append("added")
        elif step == "truncate":
            connection.execute(f"truncate {draw.choice(there)}".encode())
        for name in there:
            first = draw.randrange(FEW_ROWS)
            some = f"k between {first} and {first + 60}"
            connection.execute(f"update {name} set v = v + 1 where {some}".encode())
            connection.execute(f"update {name} set k = -k, v = v + 1 where {some} and k % 5 = 0".encode())
            connection.execute(f"delete from {name} where {some} and k % 7 = 0".encode())
        if draw.random() < 0.7:
            further(scene, capture, draw.choice((1, 30, 150)))
            capture.kill()
            capture = start(scene, draw)
    capture.ready(PATIENCE_S)
    for name in TABLES:
        scene.wait_same(connection, name, name, ["k"])
    assert capture.stop() == 0
    for name in TABLES:
        check_order(scene, name)


def start(scene: CaptureScene, draw: random.Random) -> Capture:
    return scene.start(chunk_rows=draw.choice((10, 40)), catch_up_mb=draw.choice((1, 16)))


def further(scene: CaptureScene, capture: Capture, count: int) -> None:
    """Until the topics have so many records more, or all tables are read."""

    def records() -> int:
        return sum(len(scene.topics.records(f"{scene.prefix}.public.{name}")) for name in TABLES)

    before = records()

    def came() -> bool:
        assert capture.process.poll() is None, capture.said()[-3000:]
        return records() >= before + count or capture.is_ready

    wait_until(came, PATIENCE_S, "more records")


def check_order(scene: CaptureScene, name: str) -> None:
    """`v` rises with every change of a row, and a key that came back has the row that left it."""
    newest: dict[bytes, int] = {}
    for record in scene.topics.records(f"{scene.prefix}.public.{name}"):
        if record["value"] is not None:
            value = scene.topics.decoded(record["value"])["v"]
            assert value >= newest.get(record["key"], 0), "an older row behind a newer one"
            newest[record["key"]] = value


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1])
def test_three_kinds_of_snapshots_and_kills(scene: CaptureScene, connection: Connection, seed: int) -> None:
    go(scene, connection, seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 2 + SEEDS))
def test_three_kinds_of_snapshots_and_kills_for_long(scene: CaptureScene, connection: Connection, seed: int) -> None:
    go(scene, connection, seed)
