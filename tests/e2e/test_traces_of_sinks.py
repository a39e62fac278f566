"""A sink exports a span for each record of a sampled trace, once the record is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.connecting import reaches, running
from support.http_peer import Answer, HttpPeer

from suiro.client import Client, NewTopic
from suiro.protocol.records import Record, encode_batch
from suiro.telemetry import traces_to

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_spans_of_what_a_sink_has_stored(suiro_node: Any, tmp_path: Path) -> None:
    topic = f"traced-{uuid4().hex[:6]}"
    with Client(suiro_node.bootstrap_servers) as client:
        client.create_topics([NewTopic(topic, 1)])
        records = [
            Record(
                offset=n,
                timestamp=1_700_000_000_000,
                key=b"k",
                value=b'{"n":%d}' % n,
                headers=(("traceparent", f"00-{TRACE}-{SPAN}-0{n % 2}".encode()),),
            )
            for n in range(6)
        ]
        client.produce({(topic, 0): encode_batch(records)})
    text = f"""
[sink.kept]
kind = "parquet"
topics = ["{topic}"]
folder = "out"
linger_ms = 0
columns = {{ n = "long" }}
"""
    with HttpPeer(lambda asked: Answer(200, b"")) as peer:
        traces = traces_to(peer.url, "suiro-connect", {})
        assert traces is not None
        with running(tmp_path, suiro_node.bootstrap_servers, text, traces=traces) as runtime:
            reaches(runtime, "kept", lambda status: status["records"] == 6, "six records")
        traces.close()
        requests = [ExportTraceServiceRequest.FromString(one.body) for one in peer.asked]
    spans = [span for one in requests for span in one.resource_spans[0].scope_spans[0].spans]
    offsets = [
        attribute.value.int_value
        for span in spans
        for attribute in span.attributes
        if attribute.key == "messaging.kafka.offset"
    ]
    assert offsets == [1, 3, 5]
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert {span.parent_span_id.hex() for span in spans} == {SPAN}
    assert {span.name for span in spans} == {f"store {topic}"}
    assert len({span.span_id for span in spans}) == 3
