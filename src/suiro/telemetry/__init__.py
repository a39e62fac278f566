"""Reports suiro's work to others: OpenLineage events of jobs and their datasets, metrics and traces by OTLP.

- `openlineage`: the events of a run, its life, and the columns of a schema's text.
- `otlp`: metrics as requests of OpenTelemetry's protocol. `tracing`: spans of records, and the header `traceparent`.
- `sending`: a bounded queue, and a thread that writes events to a file or an HTTP endpoint.

Packages above describe their own datasets. Nothing here blocks or fails the work that it reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.extras import on_first_use

if TYPE_CHECKING:
    from suiro.telemetry.openlineage import (
        Column,
        ColumnOrigin,
        Dataset,
        Datasets,
        Job,
        LineageRun,
        columns_of,
        job_namespace,
        kafka_namespace,
    )
    from suiro.telemetry.otlp import MetricsPush, push_metrics
    from suiro.telemetry.sending import EventSender, sender_to
    from suiro.telemetry.tracing import (
        TRACEPARENT,
        Parent,
        Span,
        Traces,
        Tracing,
        parent_of,
        span_id,
        trace_id,
        traces_to,
    )

__all__ = [
    "TRACEPARENT",
    "Column",
    "ColumnOrigin",
    "Dataset",
    "Datasets",
    "EventSender",
    "Job",
    "LineageRun",
    "MetricsPush",
    "Parent",
    "Span",
    "Traces",
    "Tracing",
    "columns_of",
    "job_namespace",
    "kafka_namespace",
    "parent_of",
    "push_metrics",
    "sender_to",
    "span_id",
    "trace_id",
    "traces_to",
]

__getattr__ = on_first_use(
    __name__,
    {
        "openlineage": "Column ColumnOrigin Dataset Datasets Job LineageRun columns_of job_namespace kafka_namespace",
        "otlp": "MetricsPush push_metrics",
        "sending": "EventSender sender_to",
        "tracing": "TRACEPARENT Parent Span Traces Tracing parent_of span_id trace_id traces_to",
    },
)
