"""Metrics by OTLP are those of the Prometheus page, at the endpoint that the variables of OpenTelemetry name."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.core import Metric, SummaryMetricFamily

from suiro.errors import ConfigError, MissingExtraError
from suiro.foundation.metrics import family
from suiro.telemetry.otlp import MetricsPush, encode_metrics, exporter_to, push_metrics
from tests.support.http_peer import Answer, HttpPeer
from tests.support.waiting import wait_until


def families() -> Iterator[Metric]:
    counter = family("counter", "suiro_records", "Records.", ["topic"])
    counter.add_metric(["a"], 5)
    counter.add_metric(["\udc80"], 7)
    yield counter
    gauge = family("gauge", "suiro_lag", "Behind.")
    gauge.add_metric([], 2.5)
    yield gauge
    summary = SummaryMetricFamily("suiro_time", "Time.", labels=["api"])
    summary.add_metric(["fetch"], count_value=3, sum_value=6.5)
    summary.add_sample("suiro_time", {"api": "fetch", "quantile": "0.5"}, 2.0)
    yield summary
    yield family("gauge", "suiro_nothing", "Without a number.")


def decoded(data: bytes) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    request.ParseFromString(data)
    return request


def labels(point: object) -> dict[str, str]:
    return {one.key: one.value.string_value for one in point.attributes}  # type: ignore[attr-defined]


def test_counters_gauges_and_summaries() -> None:
    request = decoded(encode_metrics(families(), {"service.name": "s"}, since_ns=5, now_ns=9))
    (resource,) = request.resource_metrics
    assert labels(resource.resource) == {"service.name": "s"}
    counter, gauge, summary = resource.scope_metrics[0].metrics
    assert (counter.name, counter.description) == ("suiro_records", "Records.")
    assert (counter.sum.is_monotonic, counter.sum.aggregation_temporality) == (True, 2)
    assert [(labels(one), one.as_double) for one in counter.sum.data_points] == [
        ({"topic": "a"}, 5),
        ({"topic": "\\udc80"}, 7),
    ]
    assert {(one.start_time_unix_nano, one.time_unix_nano) for one in counter.sum.data_points} == {(5, 9)}
    assert [(labels(one), one.as_double) for one in gauge.gauge.data_points] == [({}, 2.5)]
    (point,) = summary.summary.data_points
    assert (labels(point), point.count, point.sum) == ({"api": "fetch"}, 3, 6.5)
    assert [(one.quantile, one.value) for one in point.quantile_values] == [(0.5, 2.0)]


def test_pushes_on_an_interval_and_at_the_end() -> None:
    with HttpPeer(lambda asked: Answer(200, b"")) as peer:
        peer.faults.append(Answer(503))
        exporter = exporter_to(f"{peer.url}/", "metrics", "suiro", {"OTEL_EXPORTER_OTLP_HEADERS": "key=a%20b"})
        assert exporter is not None
        push = MetricsPush(families, exporter, interval_s=0.01)
        wait_until(lambda: push.sender.sent >= 2)
        push.stop()
        push.stop()
        assert push.sender.dropped == 0
        assert {one.path for one in peer.asked} == {"/v1/metrics"}
        assert peer.asked[0].headers["key"] == "a b"
        assert peer.asked[0].headers["content-type"] == "application/x-protobuf"
        assert len(decoded(peer.asked[-1].body).resource_metrics[0].scope_metrics[0].metrics) == 3


def test_metrics_that_cannot_be_taken_do_not_end_the_pushes() -> None:
    failures = [KeyError("x")]

    def sometimes() -> Iterator[Metric]:
        if failures:
            raise failures.pop()
        return families()

    with HttpPeer(lambda asked: Answer(200, b"")) as peer:
        exporter = exporter_to(peer.url, "metrics", "suiro", {})
        assert exporter is not None
        push = MetricsPush(sometimes, exporter, interval_s=0.01)
        wait_until(lambda: push.sender.sent)
        push.stop()
        assert push.sender.dropped == 1


def test_the_variables_of_opentelemetry() -> None:
    both = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/x/",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://t/own",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "a=1, b=2",
        "OTEL_SERVICE_NAME": "mine",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,team=x%2Cy",
    }
    metrics, traces = (exporter_to(None, one, "suiro", both) for one in ("metrics", "traces"))  # type: ignore[arg-type]
    assert metrics is not None
    assert traces is not None
    assert (metrics.url, traces.url) == ("http://c:4318/x/v1/metrics", "https://t/own")
    assert (metrics.headers, traces.headers) == ({}, {"a": "1", "b": "2"})
    assert metrics.attributes["service.name"] == "mine"
    assert metrics.attributes["team"] == "x,y"
    assert exporter_to(None, "metrics", "s", {}) is None
    assert exporter_to(None, "metrics", "s", both | {"OTEL_METRICS_EXPORTER": "none"}) is None
    assert exporter_to("http://c:1", "metrics", "s", {"OTEL_SDK_DISABLED": "true"}) is None


@pytest.mark.parametrize(
    ("where", "environment"),
    [
        ("c:4318", {}),
        ("http://u:secret@c:99999", {}),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "grpc://c"}),
        ("http://c", {"OTEL_EXPORTER_OTLP_HEADERS": "secret"}),
        ("http://c", {"OTEL_EXPORTER_OTLP_HEADERS": "a=secret%0d%0ab"}),
        ("http://c", {"OTEL_EXPORTER_OTLP_HEADERS": "a=secret%20"}),
        ("http://c", {"OTEL_EXPORTER_OTLP_HEADERS": "a b=secret"}),
        ("http://c", {"OTEL_EXPORTER_OTLP_HEADERS": "a=secret%C3%BC"}),
    ],
)
def test_wrong_settings_are_named_without_secrets(where: str | None, environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="OTLP") as error:
        exporter_to(where, "metrics", "s", environment)
    assert "secret" not in str(error.value)


def test_a_wrong_interval_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1s")
    with pytest.raises(ConfigError, match="OTEL_METRIC_EXPORT_INTERVAL"):
        push_metrics(families, "http://127.0.0.1:9", "s")


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("suiro.extras.is_installed", lambda *modules: False)
    with pytest.raises(MissingExtraError, match=r"pip install 'suiro\[telemetry\]'"):
        exporter_to("http://c:4318", "metrics", "s", {})
    with caplog.at_level(logging.WARNING):
        found = exporter_to(None, "metrics", "s", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"})
    assert found is None
    assert "suiro[telemetry]" in caplog.text
