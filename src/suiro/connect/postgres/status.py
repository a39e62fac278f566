"""Metrics of a capture for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from suiro.foundation.metrics import Kind, family
from suiro.telemetry import MetricsPush, push_metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def _metric(text: str, kind: Kind = "gauge", default: float = 0) -> Any:
    return field(default=default, metadata={"kind": kind, "text": text})


@dataclass(slots=True)
class CaptureStatus:
    """Written by the capture's thread, read by other threads."""

    records: int = _metric("Records written to topics, by snapshots and live.", "counter")
    snapshot_rows: int = _metric("Rows read by snapshots.", "counter")
    transactions: int = _metric("Transactions of Postgres that were read.", "counter")
    kafka_transactions: int = _metric("Transactions committed to Kafka.", "counter")
    lag_bytes: int = _metric("How much of Postgres's log the slot holds back: its end less what is confirmed.")
    retained_bytes: int = _metric("How much of Postgres's log is kept on disk for the slot (its end less restart_lsn).")
    lag_alert: int = _metric("1 while lag_bytes is above the alert threshold.")
    tables_running: int = _metric("Tables whose snapshot is not complete.")
    owed_keys: int = _metric("Rows to be read by their keys: updates left values out (TOAST) that nothing had.")
    visibility_wait_seconds: float = _metric(
        "For how long rows wait to be read until transactions are visible; the log names one.", default=0.0
    )
    last_commit_seconds: float = _metric(
        "When the last transaction that was written committed in Postgres (Unix time).", default=0.0
    )
    restarts: int = _metric("Sessions that ended because something was lost.", "counter")


def serve_capture_metrics(status: CaptureStatus, name: str, host: str, port: int) -> str:
    """Serves /metrics and returns its URL."""
    from suiro.foundation.http import serve_metrics_page

    return serve_metrics_page(lambda: capture_families([(name, status)]), host, port)


def push_capture_metrics(status: CaptureStatus, name: str, otlp: str | None) -> MetricsPush | None:
    """Pushes the same metrics by OTLP. Returns None if no endpoint is configured."""
    return push_metrics(lambda: capture_families([(name, status)]), otlp, "suiro-capture")


def capture_families(captures: Sequence[tuple[str, CaptureStatus]]) -> Iterator[Metric]:
    """Returns the metrics of captures, by their names."""
    for one in fields(CaptureStatus) if captures else ():
        metric = family(one.metadata["kind"], f"suiro_capture_{one.name}", one.metadata["text"], ["name"])
        for name, status in captures:
            metric.add_metric([name], float(getattr(status, one.name)))
        yield metric
