"""What a capture in `suiro connect` tells of its snapshots and of changed tables, over kills."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from support.capturing import DOCS
from support.capturing import ROWS as ROWS_OF_DOCS
from support.connecting import Running
from support.postgres import Postgres
from support.postgres_rows import Connection
from support.waiting import wait_until

from suiro.registry import RegistryProcess

ROWS = 10_000
CONFIGURATION = """
[connect]
bootstrap_servers = "{bootstrap}"
registry = "{registry}"
listen = "127.0.0.1:0"

[source.{name}]
kind = "postgres"
dsn = "{dsn}"
chunk_rows = 100
snapshot_readers = 1
"""
DEADLINE_S = 90

Start = Callable[[], "Told"]


class Told:
    """A process of connectors, and what it tells of its capture."""

    def __init__(self, path: Path, name: str) -> None:
        self.process = Running(path)
        self._url = f"{self.process.url}/connectors/{name}/status"

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(self._url, timeout=30).json()
        return found

    def restart(self) -> None:
        httpx.post(self._url.replace("/status", "/restart"), timeout=30).raise_for_status()

    def metrics(self) -> str:
        return httpx.get(f"{self.process.url}/metrics", timeout=30).text

    def capture(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status()["capture"] or {"tables": [], "schema_changes": []}
        return found

    def table(self, name: str) -> dict[str, Any]:
        found = [one for one in self.capture()["tables"] if one["table"] == name]
        return found[0] if found else {"state": None, "rows": 0}

    def reaches(self, condition: Callable[[], Any], what: str) -> None:
        try:
            wait_until(condition, DEADLINE_S, what)
        except AssertionError:
            pytest.fail(f"{what}: {json.dumps(self.status(), indent=1)}")


@pytest.fixture
def start(
    suiro_node: Any,
    registry: RegistryProcess,
    postgres: Postgres,
    prefix: str,
    connection: Connection,
    tmp_path: Path,
) -> Iterator[Start]:
    """The test's database outlives the captures of it."""
    path = tmp_path / "connectors.toml"
    path.write_text(
        CONFIGURATION.format(
            bootstrap=suiro_node.bootstrap_servers,
            registry=registry.url,
            name=prefix,
            dsn=postgres.dsn.replace("/postgres?", f"/{prefix}?"),
        )
    )
    started: list[Told] = []

    def begin() -> Told:
        started.append(Told(path, prefix))
        return started[-1]

    yield begin
    for one in started:
        if not one.process.ended:
            one.process.kill()


def test_a_snapshot_that_is_killed_says_so(start: Start, connection: Connection, prefix: str) -> None:
    connection.execute("create table big (id int primary key, name text)")
    connection.execute(f"insert into big select g, repeat('x', 40) from generate_series(1, {ROWS}) g")
    connection.execute("create table small (id int primary key)")
    connection.execute("insert into small values (1), (2)")
    connection.execute("analyze")
    first = start()
    first.reaches(lambda: first.table("public.big")["rows"] > 0, "rows of the large table")
    seen = first.table("public.big")
    assert (seen["topic"], seen["is_resumed"]) == (f"{prefix}.public.big", False)
    assert seen["expected"] == ROWS
    first.process.kill()
    second = start()
    second.reaches(lambda: second.capture().get("tables_complete") == 2, "both tables to be complete")
    told = second.capture()
    assert told["tables_in_all"] == 2
    big = second.table("public.big")
    # A kill comes before the first range is committed, in the middle, or behind the last.
    assert big["rows"] <= ROWS
    assert big["rows"] == ROWS or big["is_resumed"] or seen["rows"] == ROWS
    assert told["position"].count("/") == 1


def test_a_table_that_others_have_locked_is_told_so(
    start: Start, postgres: Postgres, connection: Connection, prefix: str
) -> None:
    connection.execute(DOCS.encode())
    connection.execute(f"select pg_create_logical_replication_slot('suiro_{prefix}', 'pgoutput')")
    running = start()  # beside changes, for the slot was there: range by range, with a lock for each
    running.reaches(lambda: running.table("public.t")["rows"] > 0, "the first rows")
    with psycopg.connect(postgres.dsn, dbname=prefix) as other:
        other.execute("lock table t in access exclusive mode")
        running.reaches(lambda: running.table("public.t")["state"] == "locked", "the lock to be seen")
        assert 0 < running.table("public.t")["rows"] < ROWS_OF_DOCS
    running.reaches(lambda: running.table("public.t")["state"] == "complete", "the rest")
    assert running.table("public.t")["rows"] == ROWS_OF_DOCS


def test_a_table_that_changes_is_told(start: Start, connection: Connection, prefix: str) -> None:
    connection.execute("create table t (id int primary key, name text)")
    connection.execute("insert into t values (1, 'one')")
    running = start()
    running.reaches(lambda: running.table("public.t")["state"] == "complete", "the snapshot")
    assert running.capture()["schema_changes"] == []
    connection.execute("alter table t add note text")
    connection.execute("insert into t values (2, 'two', 'more')")
    running.reaches(lambda: running.capture()["schema_changes"], "the new column")
    (change,) = running.capture()["schema_changes"]
    assert (change["table"], change["topic"]) == ("public.t", f"{prefix}.public.t")
    assert change["changes"] == ["column 'note' is new"]
    running.process.kill()
    again = start()  # what the stream brings once more is no change
    connection.execute("insert into t values (3, 'three', 'more')")
    again.reaches(lambda: again.status()["records"] >= 1, "a record")
    assert again.capture()["schema_changes"] == []


def test_a_restarted_connector_begins_no_new_snapshot_again(
    start: Start, connection: Connection, tmp_path: Path
) -> None:
    connection.execute("create table small (id int primary key); insert into small values (1), (2)")
    with (tmp_path / "connectors.toml").open("a") as file:
        file.write('snapshot = "new"\n')
    running = start()
    running.reaches(lambda: running.table("public.small")["rows"] == 2, "the rows")
    running.reaches(lambda: running.table("public.small")["state"] == "complete", "the snapshot")
    running.restart()
    running.reaches(lambda: running.table("public.small")["rows"] == 0, "the next session")
    running.reaches(lambda: running.table("public.small")["state"] == "complete", "its position")
    assert running.table("public.small")["rows"] == 0


def test_the_metrics_of_a_capture_are_those_of_its_process(start: Start, connection: Connection, prefix: str) -> None:
    connection.execute("create table small (id int primary key); insert into small values (1), (2)")
    running = start()
    running.reaches(lambda: running.table("public.small")["state"] == "complete", "the snapshot")
    assert f'suiro_capture_snapshot_rows_total{{name="{prefix}.suiro_{prefix}"}} 2.0' in running.metrics()


def test_a_capture_that_cannot_go_on_is_tried_less_and_less_often(
    start: Start, connection: Connection, tmp_path: Path
) -> None:
    """Each session commits its position first, which counted as progress. The status had no error in between."""
    connection.execute("create table small (id int primary key, at time); insert into small values (1, '12:00')")
    running = start()
    running.reaches(lambda: running.table("public.small")["state"] == "complete", "the snapshot")
    connection.execute("alter table small alter at type text; insert into small values (2, '12:00')")
    running.reaches(lambda: running.status()["restarts"] >= 3, "three restarts")
    assert "SchemaRefusedError" in running.status()["error"]
    log = (tmp_path / "connect.log").read_text()
    assert [f"restarts in {wait_ms} ms" in log for wait_ms in (500, 1000, 2000)] == [True, True, True]
