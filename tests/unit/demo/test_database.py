"""The embedded Postgres as a process of its own, its tables, and the flights that are inserted while the demo runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.waiting import wait_until

from suiro.demo.database import ROWS, Feed, create_tables, insert
from suiro.demo.dataset import REFERENCES, flights, references
from suiro.demo.processes import Child
from suiro.errors import FatalError


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    folder = tmp_path_factory.mktemp("demo")
    child = Child("Postgres", "suiro.demo.database", str(folder / "data"), log_path=folder / "log")
    yield child
    child.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(child.events[0]["dsn"])


@pytest.fixture(scope="module")
def connection(postgres: Child) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres.wait_ready()["dsn"], autocommit=True) as made:
        create_tables(made)
        yield made


def _rows(connection: psycopg.Connection[Any], table: str) -> list[dict[str, Any]]:
    cursor = connection.execute(f"select * from {table}")
    assert cursor.description is not None
    names = [column.name for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def test_the_tables_hold_what_the_wheel_has(connection: psycopg.Connection[Any]) -> None:
    assert connection.execute("show wal_level").fetchone() == ("logical",)
    for name in REFERENCES:
        wanted = references(name)
        insert(connection, name, wanted)
        assert sorted(_rows(connection, name), key=str) == sorted(wanted.to_pylist(), key=str)


def test_the_feed_stays_close_to_the_pipeline(postgres: Child, connection: psycopg.Connection[Any]) -> None:
    wanted = flights(limit=3 * ROWS + 500)
    processed = [0]
    insert(connection, "flights", wanted.slice(0, 500))
    feed = Feed(
        postgres.events[0]["dsn"],
        wanted.slice(500),
        before=500,
        ahead=ROWS + 500,
        processed=lambda: processed[0],
    )
    feed.go_on(len(feed) - 30)
    feed.start()
    wait_until(lambda: feed.inserted == 2 * ROWS, 30, "two transactions, as nothing is processed")
    processed[0] = len(wanted)
    wait_until(lambda: feed.inserted == 3 * ROWS - 30, 30, "as many as it may")
    feed.go_on(len(feed), rows=10, every_s=0.01)
    wait_until(lambda: feed.inserted == 3 * ROWS, 30, "the rest, in three transactions")
    feed.stop()
    assert feed.failure is None
    transactions = connection.execute("select count(distinct xmin::text) from flights").fetchone()
    assert transactions == (1 + 3 + 3,)
    found = sorted(_rows(connection, "flights"), key=str)
    assert found == sorted(wanted.to_pylist(), key=str)


def test_a_child_that_fails_says_why(tmp_path: Path) -> None:
    child = Child("Postgres", "suiro.demo.database", log_path=tmp_path / "log")
    with pytest.raises(FatalError, match=r"(?s)Postgres did not begin.*ValueError"):
        child.wait_ready()
    wait_until(lambda: child.ended, 30, "its end")
