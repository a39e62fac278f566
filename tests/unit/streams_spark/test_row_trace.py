"""The input records of a row of a running application: over HTTP, by a process of its own, from a real log."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.errors import FatalError, TransientError, UsageError
from suiro.protocol.records import Record, encode_batch
from suiro.streams import Materialized, StreamsBuilder, serdes
from suiro.streams_spark import ApplicationServer, KafkaStreams, row_trace
from suiro.streams_spark.row_trace import TEXT_CHARS, RowTracer

CARRIERS = ("UA", "B6")


@pytest.fixture
def topic(suiro_node: Any) -> str:
    """Twenty flights in two partitions, the first of which has lost its beginning."""
    name = f"flights-{uuid4().hex[:8]}"
    with Client(suiro_node.bootstrap_servers) as client:
        client.create_topics([NewTopic(name, 2, configs={"retention.ms": "-1"})])
        for partition in range(2):
            values = [{"carrier": CARRIERS[n % 2], "n": n} for n in range(10)]
            records = [
                Record(offset=n, timestamp=1_372_636_800_000 + n, key=b"f", value=json.dumps(value).encode())
                for n, value in enumerate(values)
            ]
            client.produce({(name, partition): encode_batch(records)})
    return name


def streams_of(suiro_node: Any, topic: str, add: Any = None) -> KafkaStreams:
    builder = StreamsBuilder()
    flights = builder.stream(topic, key=serdes.string, value=serdes.json)
    by_carrier = flights.group_by(lambda key, flight: flight["carrier"], key=serdes.string)
    by_carrier.aggregate(
        list,
        add or (lambda key, flight, row: [*row, flight["n"]]),
        value=serdes.json,
        materialized=Materialized.as_("rows"),
    )
    # Of its own: what other tests committed under the same name would be the end of what is read.
    return KafkaStreams(builder.build(), application_id=topic, bootstrap_servers=suiro_node.bootstrap_servers)


@pytest.fixture
def http(suiro_node: Any, topic: str) -> Iterator[httpx.Client]:
    server = ApplicationServer(streams_of(suiro_node, topic), "127.0.0.1", 0)
    with httpx.Client(base_url=f"{server.url}/api/v1/application/stores", timeout=120) as made:
        yield made
    server.stop()


def test_the_records_of_a_row(http: httpx.Client, topic: str) -> None:
    found = http.post("/rows/explain", json={"key": "UA", "window": None}).json()
    assert sorted((one["partition"], one["offset"]) for one in found["records"]) == [
        (partition, offset) for partition in range(2) for offset in range(0, 10, 2)
    ]
    assert {one["topic"] for one in found["records"]} == {topic}
    assert json.loads(found["value"]) == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]
    assert (found["proven"], found["stopped"], found["earlier"]) == (True, None, 0)
    assert (found["read"], found["begin_later"]) == (20, [])


def test_a_beginning_that_is_gone_is_said(suiro_node: Any, http: httpx.Client, topic: str) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": suiro_node.bootstrap_servers})
    for gone in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        gone.result()
    found = http.post("/rows/explain", json={"key": "B6"}).json()
    assert found["begin_later"] == [{"topic": topic, "partition": 0, "offset": 4}]
    assert sorted((one["partition"], one["offset"]) for one in found["records"]) == [
        *((0, offset) for offset in (5, 7, 9)),
        *((1, offset) for offset in (1, 3, 5, 7, 9)),
    ]


@pytest.mark.parametrize(
    ("store", "body", "status", "said"),
    [
        ("nothing", {"key": "UA"}, 404, "has no store 'nothing'; it has rows"),
        ("rows", {}, 400, "key"),
        ("rows", {"key": "UA", "window": [1]}, 400, "window"),
        ("rows", {"key": "UA", "more": 1}, 400, "more"),
        ("rows", {"key": "x" * TEXT_CHARS}, 400, "is shown cut"),
        ("rows", {"key": "x" * 100_000}, 413, "bytes"),
    ],
)
def test_what_is_no_row(http: httpx.Client, store: str, body: Any, status: int, said: str) -> None:
    answer = http.post(f"/{store}/explain", json=body)
    assert (answer.status_code, said in answer.json()["message"]) == (status, True), answer.text


def test_a_row_that_is_not_there(http: httpx.Client) -> None:
    found = http.post("/rows/explain", json={"key": "HA"}).json()
    assert (found["found"], found["records"], found["read"]) == (False, [], 20)


def test_a_function_that_fails_is_named(suiro_node: Any, topic: str) -> None:
    def add(key: str, flight: Any, row: Any) -> Any:
        raise ValueError("no such carrier")

    tracer = RowTracer(streams_of(suiro_node, topic, add).traceable)
    with pytest.raises(UsageError, match=r"KSTREAM-AGGREGATE-0000000002 failed .* no such carrier"):
        tracer.trace("rows", "UA", None)


def stuck(key: str, flight: Any, row: Any) -> Any:
    threading.Event().wait(600)


def test_a_function_that_takes_for_ever_is_ended(suiro_node: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_trace, "SECONDS", 2.0)
    monkeypatch.setattr(row_trace, "KILLED_AFTER_S", 2.0)
    tracer = RowTracer(streams_of(suiro_node, topic, stuck).traceable)
    with pytest.raises(TransientError, match="within 4 s"):
        tracer.trace("rows", "UA", None)


def test_one_row_at_a_time_and_a_killed_process_is_said(suiro_node: Any, topic: str) -> None:
    tracer = RowTracer(streams_of(suiro_node, topic, stuck).traceable)
    failed: list[Exception] = []

    def trace() -> None:
        try:
            tracer.trace("rows", "UA", None)
        except Exception as error:
            failed.append(error)

    tracing = threading.Thread(target=trace)
    tracing.start()
    wait_until(lambda: tracer._process is not None, what="the process runs")
    with pytest.raises(TransientError, match="of another row"):
        tracer.trace("rows", "B6", None)
    process = tracer._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    tracing.join(60)
    (error,) = failed
    assert isinstance(error, FatalError)
    assert "exit code -9" in str(error)
