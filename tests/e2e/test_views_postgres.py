"""A view served from Postgres, and consumers of its output who change versions and come back: through a host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer
from support.postgres import Postgres
from support.views import CARRIERS, Feed, HostProcess, expected, hosted, rows_of, write_app
from support.waiting import wait_until

from suiro.views import Views

# CI's time: two starts of Spark. What is between the processes is tested in tests/contract, in both kinds of stores.
pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1_800)]


@pytest.fixture
def host(suiro_node: Any, postgres: Postgres, tmp_path: Path) -> Iterator[HostProcess]:
    with hosted(suiro_node.bootstrap_servers, tmp_path / "views", "--postgres", postgres.dsn) as made:
        yield made


def app_of(folder: Path, version: int, view: str, feed: Feed) -> str:
    app = write_app(folder, version, view=view, topic=feed.topic)
    path = Path(app.rpartition(":")[0])
    path.write_text(path.read_text().replace('key="carrier"', 'key="carrier", serve="postgres", search="carrier"'))
    return app


def consumed(bootstrap_servers: str, group: str, topic: str, until: dict[str, Any]) -> dict[str, Any]:
    """What a consumer of the group makes of the topic's next records: it goes on until that is `until`, and commits."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
        | ({"auto.offset.reset": "earliest"} if topic.endswith(".v1") else {})
    )
    rows: dict[str, Any] = {}

    def is_there() -> bool:
        for message in consumer.consume(100, timeout=1.0):
            assert message.error() is None, message.error()
            rows[message.key().decode()] = json.loads(message.value())
        return rows == until

    try:
        consumer.subscribe([topic])
        wait_until(is_there, 120, what=f"{group} to read {until}, so far {rows}")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return rows


def test_served_from_postgres_and_consumed_downstream(
    suiro_node: Any, postgres: Postgres, host: HostProcess, feed: Feed, tmp_path: Path
) -> None:
    view, group = f"delays_{uuid4().hex[:8]}", f"billing-{uuid4().hex[:8]}"
    kafka = suiro_node.bootstrap_servers
    feed.send(200)
    host.cli("deploy", app_of(tmp_path, 1, view, feed))
    with Views(host.url, caller="me", timeout_s=120) as views:
        assert rows_of(views, view, feed, 1) == expected(feed, 1)
        assert [row["key"] for row in views.rows(view, search="ua")["rows"]] == [{"carrier": "UA"}]
        host.cli("deploy", app_of(tmp_path, 2, view, feed))
        assert rows_of(views, view, feed, 2) == expected(feed, 2)
        with psycopg.connect(postgres.dsn) as connection:
            for version in (1, 2):
                found = connection.execute(f"SELECT count(*) FROM {view}_v{version}.rows").fetchone()  # type: ignore[arg-type]
                assert found == (len(CARRIERS),)
        assert host.cli("compare", view)["result"]["equal"] == 1

        consumed(kafka, group, f"{view}.v1", expected(feed, 1))
        with_member = Consumer({"bootstrap.servers": kafka, "group.id": group})
        with_member.subscribe([f"{view}.v1"])
        wait_until(lambda: with_member.poll(0.2) or with_member.assignment(), 60, what="a member")
        assert "has members, and only they can move it" in host.cli("consumers", view, "2", "--group", group, ok=False)
        with_member.close()
        for version in (2, 1, 2):  # there, back, and there again: nothing twice, nothing left out
            moved = host.cli("consumers", view, str(version), "--group", group)
            assert (moved["to"], moved["moved"]["is_exact"]) == (version, True), moved
            feed.send(100)
            assert rows_of(views, view, feed, version) == expected(feed, version)
            consumed(kafka, group, f"{view}.v{version}", expected(feed, version))
            rows_of(views, view, feed, 3 - version)
        assert "has no offsets in topic" in host.cli("consumers", view, "1", "--group", "nobody", ok=False)

        host.cli("shift", view, "100")
        assert views.get(view, "UA")["version"] == 2
        host.kill()
        host.start()
        assert rows_of(views, view, feed, 2) == expected(feed, 2)
        host.cli("rollback", view)
        assert views.get(view, "UA")["row"]["value"] == expected(feed, 1)["UA"]
        host.cli("forward", view)
        host.cli("retire", view, "1", "--yes")
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            wait_until(
                lambda: connection.execute("SELECT to_regnamespace(%s)", (f"{view}_v1",)).fetchone() == (None,),
                deadline_s=300,  # its pipeline ends first
                what="the schema of version 1 to be dropped",
            )
        feed.send(50)
        assert rows_of(views, view, feed, 2) == expected(feed, 2)
