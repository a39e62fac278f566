"""Sources, captures and sinks take traces on, or begin them, and export spans once their records are committed."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.capturing import CaptureScene, Connection
from support.connecting import Running, committed, reaches, running, state, write
from support.http_peer import Answer, HttpPeer
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.protocol.records import Record, encode_batch
from suiro.telemetry import traces_to

ALWAYS = {"OTEL_TRACES_SAMPLER": "parentbased_always_on"}
PARENT = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-01")
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def spans_of(peer: HttpPeer) -> list[Any]:
    return [
        span
        for one in peer.asked
        if one.path == "/v1/traces"
        for span in ExportTraceServiceRequest.FromString(one.body).resource_spans[0].scope_spans[0].spans
    ]


def named(record: dict[str, Any]) -> tuple[str, str]:
    """Trace and span that the header of a record names."""
    found = PARENT.fullmatch(record["headers"]["traceparent"])
    assert found is not None, record
    return found[1].decode(), found[2].decode()


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
        spans = spans_of(peer)
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


def test_a_sink_begins_traces_where_the_sampler_says_so(suiro_node: Any, tmp_path: Path) -> None:
    topic = f"begun-{uuid4().hex[:6]}"
    with Client(suiro_node.bootstrap_servers) as client:
        client.create_topics([NewTopic(topic, 1)])
        headers: list[tuple[tuple[str, bytes], ...]] = [(), (("traceparent", b"no trace"),)]
        records = [
            Record(offset=n, timestamp=1_700_000_000_000, key=None, value=b'{"n":1}', headers=one)
            for n, one in enumerate(headers)
        ]
        client.produce({(topic, 0): encode_batch(records)})
    text = f"""
[sink.kept]
kind = "parquet"
topics = ["{topic}"]
folder = "out"
columns = {{ n = "long" }}
linger_ms = 0
"""
    with HttpPeer(lambda asked: Answer(200, b"")) as peer:
        traces = traces_to(peer.url, "suiro-connect", ALWAYS)
        assert traces is not None
        with running(tmp_path, suiro_node.bootstrap_servers, text, traces=traces) as runtime:
            reaches(runtime, "kept", lambda status: status["records"] == 2, "two records")
        traces.close()
        (span,) = spans_of(peer)
    assert (span.name, span.parent_span_id) == (f"store {topic}", b"")


def test_a_webhook_takes_the_trace_of_its_request_on(suiro_node: Any, tmp_path: Path) -> None:
    topic = f"hook-{uuid4().hex[:6]}"
    text = f"""
[source.hook]
kind = "webhook"
listen = "127.0.0.1:0"
unsigned = true
topic = "{topic}"
"""
    sampled, not_sampled = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
    with HttpPeer(lambda asked: Answer(200, b"")) as peer, Client(suiro_node.bootstrap_servers) as client:
        traces = traces_to(peer.url, "suiro-connect", ALWAYS)
        assert traces is not None
        port = free_port()
        with running(tmp_path, suiro_node.bootstrap_servers, text.replace(":0", f":{port}"), traces=traces) as runtime:
            reaches(runtime, "hook", lambda status: status["state"] == "RUNNING", "RUNNING")
            for header in (sampled, not_sampled, None):
                headers = {} if header is None else {"traceparent": header}
                wait_until(
                    lambda headers=headers: post(port, headers),  # type: ignore[misc]
                    what="an answer to the post",
                )
            assert state(runtime, "hook")["records"] == 3
        traces.close()
        continued, left, begun = committed(client, topic)
        spans = {(span.trace_id.hex(), span.span_id.hex()): span for span in spans_of(peer)}
    assert left["headers"]["traceparent"] == not_sampled.encode()
    assert named(continued)[0] == TRACE
    assert spans[named(continued)].parent_span_id.hex() == SPAN
    assert spans[named(begun)].parent_span_id == b""
    assert len(spans) == 2
    assert {span.name for span in spans.values()} == {f"send {topic}"}


def post(port: int, headers: dict[str, str]) -> bool:
    try:
        return httpx.post(f"http://127.0.0.1:{port}/", content=b"{}", headers=headers).status_code == 200
    except httpx.TransportError:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_a_transaction_of_postgres_is_one_trace_also_after_a_kill(
    scene: CaptureScene, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_on")
    connection.execute("CREATE TABLE t (k int PRIMARY KEY, v text)")
    connection.execute("INSERT INTO t VALUES (0, 'old')")
    topic = f"{scene.prefix}.public.t"
    client = scene.topics.client
    with HttpPeer(lambda asked: Answer(200, b"")) as peer:
        capture = scene.started(otlp=peer.url)
        connection.execute("INSERT INTO t SELECT n, 'new' FROM generate_series(1, 50) n")
        wait_until(lambda: len(committed(client, topic)) == 51, 60, what="the first transaction")
        wait_until(lambda: len(spans_of(peer)) == 1, 60, what="its span")
        capture.kill()
        connection.execute("UPDATE t SET v = 'newer'")
        capture = scene.start(otlp=peer.url)
        wait_until(lambda: len(committed(client, topic)) == 102, 60, what="the second transaction")
        assert capture.stop() == 0, capture.said()
        spans = {(span.trace_id.hex(), span.span_id.hex()): span for span in spans_of(peer)}
        records = committed(client, topic)
    by_transaction: dict[bytes, set[tuple[str, str] | None]] = {}
    for record in records:
        xid = record["headers"]["xid"]
        by_transaction.setdefault(xid, set()).add(named(record) if xid else None)
    assert "traceparent" not in records[0]["headers"] or records[0]["headers"]["xid"]
    assert [len(found) for found in by_transaction.values()] == [1, 1, 1]
    traced = {one for found in by_transaction.values() for one in found if one is not None}
    assert traced == set(spans)
    counts = {
        attribute.value.int_value
        for span in spans.values()
        for attribute in span.attributes
        if attribute.key == "messaging.batch.message_count"
    }
    assert counts == {50, 51}
    assert all(span.end_time_unix_nano > span.start_time_unix_nano for span in spans.values())


def test_connect_pushes_metrics_and_traces_to_one_endpoint(
    suiro_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"pushed-{uuid4().hex[:6]}"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id\n1\n2\n3\n")
    environment = {**ALWAYS, "OTEL_METRIC_EXPORT_INTERVAL": "50"}
    with HttpPeer(lambda asked: Answer(200, b"")) as peer:
        text = (
            f'[connect]\nbootstrap_servers = "{suiro_node.bootstrap_servers}"\nlisten = "127.0.0.1:0"\n'
            f'otlp = "{peer.url}"\n[source.rows]\nkind = "files"\nfolder = "in"\ntopic = "{topic}"\n'
        )
        process = Running(write(tmp_path, "", text), environment=environment)
        try:
            wait_until(lambda: numbers(peer).get(("suiro_connect_records", "rows")) == 3, 60, what="three records")
            page = httpx.get(f"{process.url}/metrics").text
            assert 'suiro_connect_records_total{connector="rows"} 3.0' in page
            assert process.stop() == 0
        finally:
            process.kill()
        assert len(spans_of(peer)) == 3


def numbers(peer: HttpPeer) -> dict[tuple[str, ...], float]:
    pushes = [one for one in list(peer.asked) if one.path == "/v1/metrics"]
    if not pushes:
        return {}
    request = ExportMetricsServiceRequest.FromString(pushes[-1].body)
    assert request.resource_metrics[0].resource.attributes[0].value.string_value == "suiro-connect"
    return {
        (metric.name, *(one.value.string_value for one in point.attributes)): point.as_double
        for metric in request.resource_metrics[0].scope_metrics[0].metrics
        for point in (*metric.sum.data_points, *metric.gauge.data_points)
    }
