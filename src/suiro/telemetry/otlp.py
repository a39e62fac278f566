"""OTLP over HTTP with Protobuf: where a process exports to, and metrics as an export request.

The messages are those of `opentelemetry-proto`, which the OpenTelemetry project generates. OpenTelemetry's SDK and its
exporter are not used: they add eight packages, and requests go through `sending`, with its own queue and limits.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import suiro
from suiro.clock import SystemClock
from suiro.errors import ConfigError, MissingExtraError
from suiro.extras import require
from suiro.foundation.settings import SettingError, require_headers
from suiro.numerals import natural
from suiro.telemetry.sending import QUEUE_MAX, EventSender, HttpTarget, is_http

if TYPE_CHECKING:
    from prometheus_client.core import Metric

INTERVAL_S = 60.0
CONTENT_TYPE = "application/x-protobuf"
NS_PER_MS = 1_000_000

Signal = Literal["metrics", "traces"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """Where a signal goes, and what its process is called there."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)

    def sender(self, what: str, *, queue_max: int = QUEUE_MAX) -> EventSender:
        headers = {**self.headers, "Content-Type": CONTENT_TYPE}
        return EventSender(HttpTarget(self.url, headers=headers, what=what), queue_max=queue_max)


def exporter_to(
    where: str | None, signal: Signal, service: str, environment: Mapping[str, str] | None = None
) -> Exporter | None:
    """`where`: http://HOST:PORT of an OTLP endpoint; None: the variables of OpenTelemetry. None where nothing is to be
    exported. Raises `ConfigError`, and `MissingExtraError` where the option was given. A variable of the environment
    may be meant for others, so a missing extra is only logged then."""
    given = os.environ if environment is None else environment
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    own = given.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    base = where or (None if own else given.get("OTEL_EXPORTER_OTLP_ENDPOINT"))
    if where is None and given.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp") != "otlp":
        return None
    url = f"{base.rstrip('/')}/v1/{signal}" if base else own
    if not url:
        return None
    if not is_http(url):
        raise ConfigError(
            f"OTLP endpoint {url.rpartition('@')[2]}: expected http://HOST:PORT or https://HOST:PORT; collectors take "
            "OTLP over HTTP at port 4318"
        )
    try:
        require("telemetry")
    except MissingExtraError as error:
        if where is not None:
            raise
        _log.warning("%s are not exported to OTEL_EXPORTER_OTLP_ENDPOINT: %s", signal, error)
        return None
    pairs = given.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_HEADERS") or given.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    headers = _pairs("OTEL_EXPORTER_OTLP_HEADERS", pairs)
    try:
        require_headers(headers)
    except SettingError:
        raise ConfigError("OTEL_EXPORTER_OTLP_HEADERS has characters that an HTTP header cannot have") from None
    attributes = {
        "service.name": service,
        **_pairs("OTEL_RESOURCE_ATTRIBUTES", given.get("OTEL_RESOURCE_ATTRIBUTES", "")),
    }
    if given.get("OTEL_SERVICE_NAME"):
        attributes["service.name"] = given["OTEL_SERVICE_NAME"]
    attributes |= {"telemetry.sdk.name": "suiro", "telemetry.sdk.version": suiro.__version__}
    return Exporter(url=url, headers=headers, attributes=attributes)


def _pairs(name: str, text: str) -> dict[str, str]:
    """`a=b,c=d`, with escapes as in URLs."""
    found = {}
    for pair in filter(None, (one.strip() for one in text.split(","))):
        key, equals, value = pair.partition("=")
        value = unquote(value.strip())
        if not equals or not key.strip() or not (key + value).isprintable() or not key.isascii():
            raise ConfigError(f"{name}: expected NAME=VALUE,NAME=VALUE")
        found[key.strip()] = value
    return found


def push_metrics(families: Callable[[], Iterable[Metric]], where: str | None, service: str) -> MetricsPush | None:
    """Pushes until `stop`, each OTEL_METRIC_EXPORT_INTERVAL (ms), by default a minute. `where`, None and errors: as
    `exporter_to` has them."""
    exporter = exporter_to(where, "metrics", service)
    if exporter is None:
        return None
    text = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    interval_ms = natural(text, (1 << 31) - 1)
    if text and not interval_ms:
        raise ConfigError(f"OTEL_METRIC_EXPORT_INTERVAL={text[:40]}: expected milliseconds")
    return MetricsPush(families, exporter, interval_s=interval_ms / 1_000 if interval_ms else INTERVAL_S)


class MetricsPush:
    """`families` is called on the sender's thread, as the Prometheus page calls it for each scrape. A push that waits
    for the endpoint is replaced by the next one, which has all that it had."""

    def __init__(
        self,
        families: Callable[[], Iterable[Metric]],
        exporter: Exporter,
        *,
        interval_s: float,
    ) -> None:
        self._families = families
        self._exporter = exporter
        self._interval_s = interval_s
        self._clock = SystemClock()
        self._since_ms = self._clock.wall_ms()
        self._stopping = threading.Event()
        self.sender = exporter.sender("OTLP metrics")
        self._thread = threading.Thread(target=self._push, name="telemetry-metrics", daemon=True)
        self._thread.start()

    def stop(self, *, once_more: bool = True) -> None:
        """Pushes once more, and waits for it up to the limit of `EventSender.close`. Safe to call again."""
        was_stopping = self._stopping.is_set()
        self._stopping.set()
        if not once_more:
            self.sender.abandon()
            return
        if not was_stopping:
            self._put()
        self.sender.close()

    def _push(self) -> None:
        while not self._stopping.wait(self._interval_s):
            self._put()

    def _put(self) -> None:
        self.sender.put(self._encoded, replaces="metrics")

    def _encoded(self) -> bytes:
        return encode_metrics(
            self._families(),
            self._exporter.attributes,
            since_ns=self._since_ms * NS_PER_MS,
            now_ns=self._clock.wall_ms() * NS_PER_MS,
        )


def encode_metrics(families: Iterable[Metric], attributes: Mapping[str, str], *, since_ns: int, now_ns: int) -> bytes:
    """Counters as cumulative sums, gauges as gauges, summaries with their quantiles. Names are those of Prometheus,
    a counter's without `_total`, as OpenTelemetry's rules for both have it."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    add_attributes(resource.resource, attributes)
    scope = resource.scope_metrics.add()
    scope.scope.name, scope.scope.version = "suiro", suiro.__version__
    for family in families:
        if not family.samples:
            continue
        metric = scope.metrics.add()
        metric.name, metric.description = family.name, family.documentation
        if family.type == "summary":
            _add_summary(metric.summary, family, since_ns, now_ns)
            continue
        points = metric.gauge.data_points
        if family.type == "counter":
            metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
            metric.sum.is_monotonic = True
            points = metric.sum.data_points
        for sample in family.samples:
            point = points.add()
            point.time_unix_nano = now_ns
            if family.type == "counter":
                point.start_time_unix_nano = since_ns
            point.as_double = sample.value
            add_attributes(point, sample.labels)
    encoded: bytes = request.SerializeToString()
    return encoded


def _add_summary(summary: Any, family: Metric, since_ns: int, now_ns: int) -> None:
    points: dict[tuple[tuple[str, str], ...], Any] = {}
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "quantile"}
        identity = tuple(sorted(labels.items()))
        point = points.get(identity)
        if point is None:
            point = points[identity] = summary.data_points.add()
            point.start_time_unix_nano, point.time_unix_nano = since_ns, now_ns
            add_attributes(point, labels)
        if sample.name.endswith("_count"):
            point.count = int(sample.value)
        elif sample.name.endswith("_sum"):
            point.sum = sample.value
        else:
            found = point.quantile_values.add()
            found.quantile, found.value = float(sample.labels["quantile"]), sample.value


def add_attributes(message: Any, attributes: Mapping[str, str | int]) -> None:
    for name, value in attributes.items():
        attribute = message.attributes.add()
        attribute.key = name
        if isinstance(value, int):
            attribute.value.int_value = value
        else:
            attribute.value.string_value = value.encode("utf-8", "backslashreplace").decode()
