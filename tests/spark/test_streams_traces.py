"""Traces of records through an application on Spark: on columns, over blocks, with state, and in the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.http_peer import Answer, HttpPeer
from support.spark_streams import Running
from support.waiting import wait_until

from suiro.client import LATEST, Client
from suiro.protocol import columnar
from suiro.protocol.records import Record, encode_batch
from suiro.streams import StreamsBuilder, Topology, col, serdes
from suiro.telemetry import parent_of, traces_to

pytestmark = pytest.mark.spark

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
Headers = tuple[tuple[str, bytes | None], ...]


def stateless(run: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(f"{run}.in", key=serdes.string, value=serdes.json)
    stream.filter(col("n") >= 0).to(f"{run}.columns", key=serdes.string, value=serdes.json)
    other = builder.stream(f"{run}.other", key=serdes.string, value=serdes.json)
    other.map_values(lambda value: value, value=serdes.json).to(f"{run}.rules")
    return builder.build()


def counting(run: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(f"{run}.in", key=serdes.string, value=serdes.json)
    words = stream.group_by(lambda key, value: str(value["n"]), key=serdes.string, value=serdes.json)
    words.count().to_stream().to(f"{run}.counts")
    return builder.build()


def produce(client: Client, topics: tuple[str, ...], numbers: range) -> None:
    """Every third record is in a sampled trace, every third in one that is not."""
    for topic in topics:
        records = []
        for at, n in enumerate(numbers):
            flags = ("01", "00", None)[n % 3]
            headers: Headers = (("a", b"%d" % n),)
            if flags is not None:
                headers += (("traceparent", f"00-{TRACE}-{SPAN}-{flags}".encode()),)
            value = b'{"n":%d}' % n
            records.append(Record(offset=at, timestamp=1_000 + n, key=b"k", value=value, headers=headers))
        client.produce({(topic, 0): encode_batch(records)})


def read(client: Client, topic: str) -> list[tuple[bytes, dict[str, bytes | None]]]:
    place, at, found = (topic, 0), 0, []
    end = client.list_offsets({place: LATEST}, read_committed=True)[place].offset
    while at < end:
        fetched = client.fetch({place: at}, read_committed=True)[place]
        decoded = columnar.decode(fetched.data, start_offset=at, end_offset=end, aborted=fetched.aborted, headers=True)
        columns = (decoded.batch.column(name).to_pylist() for name in ("value", "headers"))
        for value, headers in zip(*columns, strict=True):
            found.append((value, {one["key"]: one["value"] for one in headers or ()}))
        at = decoded.next_offset
    return found


@pytest.mark.parametrize("make", [stateless, counting])
def test_results_name_the_span_of_their_record(spark: Any, suiro_node: Any, tmp_path: Path, make: Any) -> None:
    results = {}
    with HttpPeer(lambda asked: Answer(200, b"")) as peer:
        traces = traces_to(peer.url, "suiro", {})
        assert traces is not None
        for kind in ("traced", "plain"):
            run = f"{uuid4().hex[:6]}-{kind}"
            running = Running(
                spark,
                make(run),
                application_id=run,
                bootstrap_servers=suiro_node.bootstrap_servers,
                directory=tmp_path,
                traces=traces if kind == "traced" else None,
            )
            with running:
                topology = running.topology
                for numbers in (range(6), range(6, 12)):  # the second one of a stateless one is the driver's
                    produce(running.client, topology.source_topics, numbers)
                    running.finish()
                results[kind] = [read(running.client, topic) for topic in topology.sink_topics]
            if kind == "traced":
                wait_until(lambda: traces.sender.sent >= 2)
                application_id = run
        traces.close()
        requests = [ExportTraceServiceRequest.FromString(one.body) for one in peer.asked]
    spans = {
        span.span_id.hex(): span for request in requests for span in request.resource_spans[0].scope_spans[0].spans
    }
    values = {kind: [[value for value, _ in rows] for rows in found] for kind, found in results.items()}
    assert values["traced"] == values["plain"]
    assert all(len(rows) == 12 for rows in values["plain"])
    named = set()
    for traced, plain in zip(results["traced"], results["plain"], strict=True):
        for (_, headers), (_, before) in zip(traced, plain, strict=True):
            assert {**headers, "traceparent": None} == {**before, "traceparent": None}
            n = int(headers["a"] or b"-1")
            if n % 3:
                assert headers == before
                continue
            parent = parent_of(headers["traceparent"])
            assert parent is not None
            assert (parent.trace_id, parent.flags) == (TRACE, "01")
            span = spans[parent.span_id]
            named.add(parent.span_id)
            assert span.parent_span_id.hex() == SPAN
            facts = {one.key: one.value for one in span.attributes}
            assert facts["messaging.kafka.offset"].int_value == n
            assert facts["messaging.consumer.group.name"].string_value == application_id
            assert span.start_time_unix_nano <= span.events[0].time_unix_nano <= span.end_time_unix_nano
    assert named == set(spans)
    assert len(spans) == 4 * len(topology.source_topics)
