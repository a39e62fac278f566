"""Spans of the records of sources, sinks and captures.

The spans of a source end when its records are committed, those of a sink when its batch is stored. A record with a
sampled trace (`traceparent`) continues it. For other records, the sampler of OTEL_TRACES_SAMPLER decides whether a
trace begins here.

`TransactionSpans` has one trace for each transaction of Postgres that the sampler chooses. All records of the
transaction name its span, which lasts from the commit in Postgres until readers of the topics see the records. Ids are
hashes of the capture and of the commit's place in Postgres's log. So a capture that is killed writes the same bytes
again. Rows of a snapshot are of no transaction and have no trace.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from suiro.clock import Clock
from suiro.connect.connectors import Headers, SinkRecord
from suiro.telemetry import TRACEPARENT, Span, Traces, parent_of, span_id, trace_id

SPANS_MAX = 2_000
"""The limit for a batch of a sink or a transaction of Kafka. Further records keep their header, and further
transactions of Postgres have no trace."""
NS_PER_MS = 1_000_000
PRODUCER = 4
_SENDING = {"messaging.system": "kafka", "messaging.operation.type": "send"}


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
                    attributes=_SENDING
                    | {
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


_Int64s = npt.NDArray[np.int64]


class TransactionSpans:
    def __init__(self, traces: Traces, name: str, clock: Clock) -> None:
        self._traces = traces
        self._name = name
        self._clock = clock
        self._open: dict[int, tuple[Span, int]] = {}  # by the commit's LSN, with the number of records

    def traceparents(
        self, of: _Int64s, xids: _Int64s, commit_us: _Int64s, lsns: _Int64s
    ) -> tuple[_Int64s, list[bytes]]:
        """Returns which records get the header, and its values. `of`: the index of each record's transaction."""
        rows: list[_Int64s] = []
        values: list[bytes] = []
        for index, count in zip(*np.unique(of, return_counts=True), strict=True):
            lsn = int(lsns[index])
            known = self._open.get(lsn)
            span = self._begun(lsn, int(xids[index]), int(commit_us[index])) if known is None else known[0]
            if span is None:
                continue
            self._open[lsn] = (span, int(count) + (0 if known is None else known[1]))
            rows.append(np.flatnonzero(of == index))
            values += [f"00-{span.trace_id}-{span.span_id}-01".encode()] * int(count)
        if not rows:
            return np.empty(0, np.int64), []
        places = np.concatenate(rows)
        order = np.argsort(places, kind="stable")
        return places[order], [values[at] for at in order.tolist()]

    def _begun(self, lsn: int, xid: int, commit_us: int) -> Span | None:
        trace = trace_id(self._name, lsn, commit_us)
        if len(self._open) >= SPANS_MAX or not self._traces.begins(trace):
            return None
        return Span(
            trace_id=trace,
            span_id=span_id(self._name, lsn, commit_us),
            parent_id="",
            kind=PRODUCER,
            name=f"capture {self._name}",
            start_ns=commit_us * 1_000,
            end_ns=commit_us * 1_000,
            attributes=_SENDING
            | {
                "db.system.name": "postgresql",
                "suiro.postgres.xid": xid,
                "suiro.postgres.lsn": f"{lsn >> 32:08X}/{lsn & 0xFFFFFFFF:08X}",
            },
        )

    def take(self) -> list[tuple[Span, int]]:
        """Takes the spans of a transaction of Kafka that ends. `export` them once it is committed."""
        taken, self._open = list(self._open.values()), {}
        return taken

    def export(self, taken: Sequence[tuple[Span, int]]) -> None:
        ended_ns = self._clock.wall_ms() * 1_000_000
        self._traces.export([span.ended(ended_ns, records) for span, records in taken])
