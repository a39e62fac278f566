"""Traces of captured transactions: one for each transaction of Postgres that the sampler chooses.

All records of the transaction name its span, which lasts from the commit in Postgres until readers of the topics see
the records. Ids are hashes of the capture and of the commit's place in Postgres's log. So a capture that is killed
writes the same bytes again. Rows of a snapshot are of no transaction and have no trace.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suiro.clock import Clock
from suiro.connect.postgres.encoding.blocks import Int64s
from suiro.telemetry import Span, Traces, span_id, trace_id

SPANS_MAX = 2_000
"""In one transaction of Kafka. Further transactions of Postgres have no trace."""
PRODUCER = 4


class TransactionSpans:
    def __init__(self, traces: Traces, name: str, clock: Clock) -> None:
        self._traces = traces
        self._name = name
        self._clock = clock
        self._open: dict[int, tuple[Span, int]] = {}  # by the commit's LSN, with the number of records

    def traceparents(self, of: Int64s, xids: Int64s, commit_us: Int64s, lsns: Int64s) -> tuple[Int64s, list[bytes]]:
        """Returns which records get the header, and its values. `of`: the index of each record's transaction."""
        rows: list[Int64s] = []
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
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "send",
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
