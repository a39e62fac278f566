"""`suiro node --otlp`: a collector gets the numbers of the metrics page, and one that is away changes nothing."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from support.http_peer import Answer, HttpPeer
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.node import NodeProcess
from suiro.protocol.records import Record, encode_batch

COUNTER = "kafka_server_brokertopicmetrics_messagesin"


def numbers(peer: HttpPeer) -> dict[tuple[str, ...], float]:
    request = ExportMetricsServiceRequest()
    request.ParseFromString(peer.asked[-1].body)
    return {
        (metric.name, *(one.value.string_value for one in point.attributes)): point.as_double
        for metric in request.resource_metrics[0].scope_metrics[0].metrics
        for point in (*metric.sum.data_points, *metric.gauge.data_points)
    }


def test_a_collector_gets_what_prometheus_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    with HttpPeer(lambda asked: Answer(200, b"")) as peer:
        settings = {"metrics.otlp.endpoint": peer.url, "metrics.listen": "127.0.0.1:0"}
        with NodeProcess.start(data=tmp_path / "log", settings=settings) as node:
            with Client(node.bootstrap_servers) as client:
                client.create_topics([NewTopic("t", 1)])
                records = [Record(offset=n, timestamp=1_700_000_000_000, key=b"k", value=b"v") for n in range(7)]
                client.produce({("t", 0): encode_batch(records)})
            wait_until(lambda: peer.asked and numbers(peer).get((COUNTER, "t")) == 7, what="seven messages")
            assert node.metrics_url is not None
            page = httpx.get(node.metrics_url).text
            assert f'{COUNTER}_total{{topic="t"}} 7.0' in page
            families = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
            pushed = {name for name, *_ in numbers(peer)}
            assert pushed <= {name.removesuffix("_total") for name in families}
            assert len(pushed) > 40


def test_a_node_without_its_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with NodeProcess.start(data=tmp_path / "log") as node, Client(node.bootstrap_servers) as client:
        client.create_topics([NewTopic("t", 1)])
        assert "t" in client.metadata(["t"])
