"""The sink `iceberg` with the Iceberg project's own REST catalog: exactly once whatever is lost or killed.

The metadata that the catalog gives is read by the specification alone (tests/support/iceberg.py).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.connecting import Running, reaches, running, send, write
from support.http_peer import CUT, LOSE, Answer
from support.iceberg_rest import IcebergUnavailable, RestCatalog
from support.share import IS_WHOLE
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.connect.sinks import iceberg

UNKNOWN = Answer(504, {"error": {"message": "the gateway gave up", "type": "GatewayTimeout", "code": 504}})
REFUSED = Answer(503, {"error": {"message": "busy", "type": "ServiceUnavailable", "code": 503}})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalog]:
    folder = tmp_path / "catalog"
    folder.mkdir()
    try:
        made = RestCatalog(folder)
    except IcebergUnavailable as error:
        pytest.skip(str(error))
    yield made
    made.kill()


@pytest.fixture
def client(suiro_node: Any, unique: str) -> Iterator[Client]:
    with Client(suiro_node.bootstrap_servers) as made:
        made.create_topics([NewTopic(unique, 2)])
        yield made


def section(topic: str, url: str) -> str:
    return f"""
[sink.{topic}]
kind = "iceberg"
topics = ["{topic}"]
table = "db.t"
catalog = {{ type = "rest", uri = "{url}" }}
partition_by = ["n"]
linger_ms = 0
max_records = 20
unknown_fields = "add"
[sink.{topic}.columns]
n = "long"
"""


def test_answers_of_commits_are_lost(
    tmp_path: Path, suiro_node: Any, client: Client, unique: str, catalog: RestCatalog
) -> None:
    faults: deque[str | Answer] = deque()
    with catalog.lossy(faults) as proxy:
        text = section(unique, proxy.url)
        with running(tmp_path, suiro_node.bootstrap_servers, text) as runtime:
            sent: list[dict[str, Any]] = []
            for fault in (LOSE, CUT, UNKNOWN, REFUSED):
                for added in ({}, {f"field_{len(sent)}": "new"}):  # a change of the schema is lost, too
                    faults.append(fault)
                    row = {"n": len(sent), **added}
                    sent.append(row)
                    send(client, unique, [row])
                    reaches(runtime, unique, lambda at: at["lag"] == 0 and not faults, "the row")
    rows = sorted(catalog.read("db.t"), key=lambda row: int(row["n"]))
    assert [{name: row[name] for name in row if row[name] is not None and name[0] != "_"} for row in rows] == sent
    metadata = catalog.metadata_of("db.t")
    assert metadata["properties"][f"suiro-connect.{unique}.{unique}-0"] == str(len(sent))
    assert "commit.retry.num-retries" not in metadata["properties"]
    assert [one["transform"] for one in metadata["partition-specs"][-1]["fields"]] == ["identity"]


def test_a_catalog_that_answers_nonsense_is_asked_again(
    tmp_path: Path, suiro_node: Any, client: Client, unique: str, catalog: RestCatalog
) -> None:
    with catalog.lossy(deque()) as proxy:
        proxy.faults += [Answer(200, b"<html>a proxy's page</html>"), Answer(200, {"neither": "config"})]
        with running(tmp_path, suiro_node.bootstrap_servers, section(unique, proxy.url)) as runtime:
            send(client, unique, [{"n": 1}])
            reaches(runtime, unique, lambda at: at["lag"] == 0 and not proxy.faults, "the row")


def test_a_catalog_that_does_not_answer_is_left_and_asked_again(
    tmp_path: Path,
    suiro_node: Any,
    client: Client,
    unique: str,
    catalog: RestCatalog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(iceberg, "ANSWER_TIMEOUT_S", 2)
    with running(tmp_path, suiro_node.bootstrap_servers, section(unique, catalog.url)) as runtime:
        send(client, unique, [{"n": 1}])
        reaches(runtime, unique, lambda at: at["lag"] == 0 and at["records"], "the row")
        with catalog.stopped():
            send(client, unique, [{"n": 2}])
            reaches(runtime, unique, lambda at: "timed out" in (at["error"] or ""), "no answer in time")
        reaches(runtime, unique, lambda at: at["records"] == 2, "the row")
    assert sorted(row["n"] for row in catalog.read("db.t")) == [1, 2]


def test_a_second_copy_writes_nothing_twice(
    tmp_path: Path, suiro_node: Any, client: Client, unique: str, catalog: RestCatalog
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    text = section(unique, catalog.url)
    servers = suiro_node.bootstrap_servers
    with running(tmp_path, servers, text), running(other, servers, text):
        for number in range(12):
            send(client, unique, [{"n": number}], partition=number % 2)
            wait_until(
                lambda n=number: n in {row["n"] for row in catalog.read("db.t")},  # type: ignore[misc]
                what="the row",
            )
    assert sorted(row["n"] for row in catalog.read("db.t")) == list(range(12))


@pytest.mark.sampled
def test_connectors_and_catalog_are_killed(
    tmp_path: Path, suiro_node: Any, client: Client, unique: str, catalog: RestCatalog
) -> None:
    draw = random.Random(3)
    configuration = write(tmp_path, suiro_node.bootstrap_servers, section(unique, catalog.url))
    process = Running(configuration)
    sent = 0

    def commits() -> int:
        return len(list(tmp_path.glob("catalog/warehouse/db/t/metadata/*.metadata.json")))

    try:
        for killed in ("connectors", "catalog") * (2 if IS_WHOLE else 1):
            for _ in range(10):
                send(client, unique, [{"n": sent + at} for at in range(20)], partition=sent // 20 % 2)
                sent += 20
            wanted = commits() + draw.randrange(1, 8)
            wait_until(lambda least=wanted: commits() >= least, 60, what="more commits")  # type: ignore[misc]
            if killed == "catalog":
                catalog.kill()
                catalog.start()
            else:
                process.kill()
                process = Running(configuration)
        wait_until(lambda: len(catalog.read("db.t")) >= sent, 90, what="every row")
        assert sorted(row["n"] for row in catalog.read("db.t")) == list(range(sent))
        assert process.stop() == 0
    finally:
        process.kill()
