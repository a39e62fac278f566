"""Metrics of a capture for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from suiro.foundation.metrics import Kind, family
from suiro.telemetry import MetricsPush, exporter_to, push_metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_HELP = {
    "records": "Records written to topics, by snapshots and live.",
    "snapshot_rows": "Rows read by snapshots.",
    "transactions": "Transactions of Postgres that were read.",
    "kafka_transactions": "Transactions committed to Kafka.",
    "lag_bytes": "How much of Postgres's log the slot holds back: its end less what is confirmed.",
    "retained_bytes": "How much of Postgres's log is kept on disk for the slot (its end less restart_lsn).",
    "lag_alert": "1 while lag_bytes is above the alert threshold.",
    "spooled_bytes": "Large transactions that wait on disk for their commit.",
    "tables_running": "Tables whose snapshot is not complete.",
    "owed_keys": "Rows to be read by their keys: updates left values out (TOAST) that nothing had.",
    "visibility_wait_seconds": "For how long rows wait to be read until transactions are visible; the log names one.",
    "last_commit_seconds": "When the last transaction that was written committed in Postgres (Unix time).",
    "restarts": "Sessions that ended because something was lost.",
}
_COUNTERS = frozenset({"records", "snapshot_rows", "transactions", "kafka_transactions", "restarts"})


@dataclass(slots=True)
class CaptureStatus:
    """Written by the capture's thread, read by other threads."""

    records: int = 0
    snapshot_rows: int = 0
    transactions: int = 0
    kafka_transactions: int = 0
    lag_bytes: int = 0
    retained_bytes: int = 0
    lag_alert: int = 0
    spooled_bytes: int = 0
    tables_running: int = 0
    owed_keys: int = 0
    visibility_wait_seconds: float = 0.0
    last_commit_seconds: float = 0.0
    restarts: int = 0


def serve_capture_metrics(status: CaptureStatus, name: str, host: str, port: int) -> str:
    """Serves /metrics and returns its URL."""
    from suiro.foundation.http import serve_metrics_page

    return serve_metrics_page(lambda: _families(status, name), host, port)


def push_capture_metrics(status: CaptureStatus, name: str, otlp: str | None) -> MetricsPush | None:
    """Pushes the same metrics by OTLP. Returns None if no endpoint is configured."""
    exporter = exporter_to(otlp, "metrics", "suiro-capture")
    return None if exporter is None else push_metrics(lambda: _families(status, name), exporter)


def _families(status: CaptureStatus, name: str) -> Iterator[Metric]:
    for one in fields(status):
        kind: Kind = "counter" if one.name in _COUNTERS else "gauge"
        metric = family(kind, f"suiro_capture_{one.name}", _HELP[one.name], ["name"])
        metric.add_metric([name], float(getattr(status, one.name)))
        yield metric
