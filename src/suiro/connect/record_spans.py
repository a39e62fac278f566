"""Spans of the records of `suiro connect`: they end when a source's records are committed, or a sink's are stored.

A record with a sampled trace (`traceparent`) continues it. For other records, the sampler of OTEL_TRACES_SAMPLER
decides whether a trace begins here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from itertools import islice

from suiro.clock import Clock
from suiro.connect.connectors import Headers, SinkRecord
from suiro.telemetry import TRACEPARENT, Span, Traces, parent_of, span_id, trace_id

SPANS_MAX = 2_000
"""The limit for a batch of a sink or a transaction of a source. Further records keep their header."""
NS_PER_MS = 1_000_000
PRODUCER = 4


class SourceSpans:
    """The spans of one transaction. Its records have no offsets yet, so ids are random."""

    def __init__(self, traces: Traces, name: str, clock: Clock) -> None:
        self._traces = traces
        self._name = name
        self._clock = clock
        self._began_ms = clock.wall_ms()
        self._begun: list[tuple[str, str, str, str]] = []

    def headers(self, topic: str, headers: Headers) -> Headers:
        """Returns the headers to write the record with."""
        if len(self._begun) >= SPANS_MAX:
            return headers
        place = next((at for at in reversed(range(len(headers))) if headers[at][0] == TRACEPARENT), None)
        parent = None if place is None else parent_of(headers[place][1])
        if parent is not None and not parent.is_sampled:
            return headers
        if parent is None:
            trace, above, flags = secrets.token_hex(16), "", "01"
            if place is not None or not self._traces.begins(trace):
                return headers
        else:
            trace, above, flags = parent.trace_id, parent.span_id, parent.flags
        span = secrets.token_hex(8)
        self._begun.append((trace, span, above, topic))
        ours = (TRACEPARENT, f"00-{trace}-{span}-{flags}".encode())
        return (*headers, ours) if place is None else (*headers[:place], ours, *headers[place + 1 :])

    def committed(self) -> None:
        ended_ms = max(self._clock.wall_ms(), self._began_ms)
        self._traces.export(
            [
                Span(
                    trace_id=trace,
                    span_id=span,
                    parent_id=above,
                    kind=PRODUCER,
                    name=f"send {topic}",
                    start_ns=self._began_ms * NS_PER_MS,
                    end_ns=ended_ms * NS_PER_MS,
                    attributes={
                        "messaging.system": "kafka",
                        "messaging.operation.type": "send",
                        "messaging.destination.name": topic,
                        "messaging.client.id": f"suiro-connect-{self._name}",
                    },
                )
                for trace, span, above, topic in self._begun
            ]
        )


def sink_spans(
    records: Iterable[SinkRecord], traces: Traces, *, name: str, group: str, began_ms: int, ended_ms: int
) -> list[Span]:
    """Returns spans from the decoding of the batch until it was stored."""
    return [
        Span(
            trace_id=trace,
            span_id=span_id(name, record.place, trace, above),
            parent_id=above,
            name=f"store {record.topic}",
            start_ns=began_ms * NS_PER_MS,
            end_ns=max(ended_ms, began_ms) * NS_PER_MS,
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "process",
                "messaging.destination.name": record.topic,
                "messaging.destination.partition.id": str(record.partition),
                "messaging.kafka.offset": record.offset,
                "messaging.consumer.group.name": group,
            },
        )
        for record, trace, above in islice(_of_traces(records, traces, name), SPANS_MAX)
    ]


def _of_traces(records: Iterable[SinkRecord], traces: Traces, name: str) -> Iterator[tuple[SinkRecord, str, str]]:
    """Yields the records that have a trace, with its id and the id of the parent span."""
    for record in records:
        found = [value for header, value in record.headers if header == TRACEPARENT]
        parent = parent_of(found[-1]) if found else None
        if parent is not None:
            if parent.is_sampled:
                yield record, parent.trace_id, parent.span_id
        elif traces.ratio and not found:
            trace = trace_id(name, record.place, record.timestamp_ms)
            if traces.begins(trace):
                yield record, trace, ""
