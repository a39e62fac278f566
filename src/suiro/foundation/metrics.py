"""Metrics in Prometheus' text format. `prometheus_client` makes it, and is loaded when somebody asks for metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge"]


def family(kind: Kind, name: str, text: str, labels: Sequence[str] = ()) -> CounterMetricFamily | GaugeMetricFamily:
    """Return a family without samples. `add_metric(values of the labels, number)` adds one."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    return (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, text, labels=labels)


def render(families: Iterable[Metric]) -> bytes:
    from prometheus_client.exposition import generate_latest

    return generate_latest(SimpleNamespace(collect=lambda: families))
