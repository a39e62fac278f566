"""`/metrics` over HTTP, in Prometheus' text format, from the node's own loop.

The numbers are taken on the loop's thread and made into text by `prometheus-client` in another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from suiro.broker.metrics.families import Family
from suiro.broker.metrics.metrics import QUANTILES, HistogramView, Metrics, Sample, Snapshot
from suiro.broker.net.server import bind_socket
from suiro.foundation import metrics
from suiro.foundation.http import MetricsPage
from suiro.telemetry import MetricsPush, push_metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SNAPSHOT_S = 10.0
"""How long a push waits for the loop."""


class MetricsEndpoint:
    """Serves the page until `stop`. Raises `ConfigError` where the address is taken."""

    def __init__(self, metrics: Metrics, *, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        import prometheus_client.exposition  # noqa: F401 (it is slow to load: now, not at the first scrape)

        sock = bind_socket(host, port, advice="Choose another address with --metrics")
        self._page = MetricsPage(sock, prepare=metrics.snapshot, render=render)
        self._starting = loop.create_task(self._page.listen())
        self.url = self._page.url

    def stop(self) -> None:
        self._starting.cancel()
        self._page.stop()


def pushed(metrics: Metrics, loop: asyncio.AbstractEventLoop, otlp: str | None) -> MetricsPush | None:
    """Pushes the same numbers by OTLP; None where nothing says where to. `stop` it from any thread, and not
    `once_more` from the loop's."""

    async def snapshot() -> Snapshot:
        return metrics.snapshot()

    def families() -> list[Metric]:
        taken = asyncio.run_coroutine_threadsafe(snapshot(), loop).result(SNAPSHOT_S)
        return [_family(*one) for one in taken]

    push = push_metrics(families, otlp or None, "suiro-node")
    if push is not None:
        import prometheus_client.exposition  # noqa: F401 - as above
    return push


def render(snapshot: Snapshot) -> bytes:
    """Prometheus' text of the numbers. Any thread may do it."""
    return metrics.render(_family(*one) for one in snapshot)


def _family(family: Family, samples: Iterable[Sample]) -> Metric:
    name, doc, labels = family.name, family.doc, family.labels
    if family.kind == "histogram":
        from prometheus_client.core import SummaryMetricFamily

        summary = SummaryMetricFamily(name, doc, labels=labels)
        for values, view in samples:
            assert isinstance(view, HistogramView)
            summary.add_metric(values, count_value=view.count, sum_value=view.total)
            for quantile, value in zip(QUANTILES, view.quantiles, strict=True):
                named = dict(zip(labels, values, strict=True)) | {"quantile": f"{quantile:g}"}
                summary.add_sample(name, named, value)
        return summary
    single = metrics.family(family.kind, name, doc, labels)
    for values, number in samples:
        if not isinstance(number, HistogramView):
            single.add_metric(values, number)
    return single
