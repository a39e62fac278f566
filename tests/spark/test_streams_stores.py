"""Stores are read while the pipeline runs: what `TopologyTestDriver`'s stores answer, the copies answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.spark_streams import Running, Sent

from suiro.errors import UsageError
from suiro.streams import (
    KafkaStreams,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    serdes,
)
from suiro.streams.topology.topology import Topology
from suiro.streams_spark import ApplicationServer
from suiro.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

TEXT = {"key": serdes.string, "value": serdes.string}


def stores(name: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(f"{name}.in", **TEXT)
    grouped = words.group_by_key()
    grouped.count(materialized=Materialized.as_("counts"))
    grouped.windowed_by(TimeWindows.of_size(20, grace=0)).count(materialized=Materialized.as_("windows"))
    grouped.windowed_by(SessionWindows.of_gap(4)).reduce(
        lambda left, right: left + right, materialized=Materialized.as_("sessions")
    )
    words.to_table(materialized=Materialized.versioned("versioned", history="60 ms"))
    table = builder.global_table(f"{name}.table", **TEXT, materialized=Materialized.as_("words"))
    words.join(table, lambda key, value: value, lambda left, right: right).to(f"{name}.out")
    return builder.build()


def input_of(name: str, first: int, last: int) -> list[Sent]:
    words = [Sent(f"{name}.in", f"k{n * n % 7}", f"w{n % 5}", 1_000 + 3 * n) for n in range(first, last)]
    return [Sent(f"{name}.table", f"w{first % 5}", f"as of {first}", 900 + first), *words]


def listed(answer: Any) -> Any:
    return list(answer) if hasattr(answer, "__next__") else answer


QUESTIONS: list[tuple[str, str, tuple[Any, ...]]] = [
    ("counts", "get", ("k1",)),
    ("counts", "get", ("nobody",)),
    ("counts", "range", ("k1", "k4")),
    ("counts", "prefix_scan", (b"k",)),
    ("counts", "all", ()),
    ("windows", "fetch", ("k1", 1_020)),
    ("windows", "fetch", ("k1", 1_000, 1_200)),
    ("windows", "fetch_all", (1_020, 1_100)),
    ("windows", "all", ()),
    ("sessions", "fetch", ("k2",)),
    ("sessions", "all", ()),
    ("versioned", "get", ("k2",)),
    ("versioned", "all", ()),
    *(("versioned", "get_as_of", (f"k{n}", at)) for n in (0, 1, 2, 4) for at in (1_040, 1_100, 1_180)),
    ("words", "get", ("w0",)),
    ("words", "all", ()),
]


def page_of(streams: KafkaStreams) -> dict[str, Any]:
    """What the application tells over HTTP, and what it refuses."""
    server = ApplicationServer(streams, "127.0.0.1", 0)
    try:
        with httpx.Client(base_url=f"{server.url}/api/v1", timeout=60) as http:

            def rows(first: int) -> Any:
                return http.get("/application/stores/counts", params={"first": first, "limit": 3}).json()

            page = rows(0)
            found = page["rows"]
            while page["next"] is not None:
                page = rows(page["next"])
                found += page["rows"]
            refused = (
                http.get("/application/stores/nothing").status_code,
                http.get("/application/stores/counts?first=-1").status_code,
                http.get("/application", headers={"host": "evil.example"}).status_code,
            )
            return {
                "application": http.get("/application").json(),
                "rows": found,
                "windows": http.get("/application/stores/windows", params={"contains": "k1"}).json(),
                "refused": refused,
            }
    finally:
        server.stop()


def test_copies_answer_as_the_stores_of_the_driver(
    run: Callable[..., Running], name: str, suiro_node: Any, tmp_path: Path
) -> None:
    topology = stores(name)
    parts = [input_of(name, 0, 30), input_of(name, 30, 70)]
    driver = TopologyTestDriver(topology)
    with run(topology, name, before=parts[0]) as running:
        with pytest.raises(UsageError, match="no store 'nothing'"):
            running.streams.store("nothing")
        for part in parts:
            if part is not parts[0]:
                running.send(part)
            running.finish()
            for item in part:
                driver.create_input_topic(item.topic).pipe_input(item.key, item.value, item.timestamp)
            for store, question, arguments in QUESTIONS:
                copy = running.streams.store(store)
                copy.catch_up()
                answer = getattr(copy, question)(*arguments)
                wanted = listed(getattr(driver.get_state_store(store), question)(*arguments))
                assert answer.value == wanted, (store, question, arguments)
                assert sum(answer.offsets.values()) > 0
        shown = page_of(running.streams)
        rows_of_counts = [(row["key"], int(row["value"])) for row in shown["rows"]]
        assert rows_of_counts == listed(driver.get_state_store("counts").all())
        assert shown["windows"]["rows"][0]["window"] is not None
        nodes = {node["operator"]: node for node in shown["application"]["graph"]["nodes"]}
        words = [one for part in parts for one in part if one.topic == f"{name}.in"]
        assert nodes["StreamAggregate"]["records"] == len(words)
        assert sum(batch["rows"] for batch in shown["application"]["batches"]) == len(words)
        assert (shown["application"]["state"], shown["application"]["lag"]) == ("RUNNING", 0)
        assert {store["name"] for store in shown["application"]["stores"]} >= {"counts", "windows", "words"}
        assert shown["refused"] == (404, 400, 403)
    with pytest.raises(UsageError, match="not started"):
        KafkaStreams(
            topology, application_id=name, bootstrap_servers=suiro_node.bootstrap_servers, state_dir=tmp_path
        ).store("counts")
