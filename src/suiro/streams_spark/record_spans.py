"""Continues traces: the header `traceparent` of a record that is read names a span of the application from here on.

The operators pass headers on as Kafka Streams does, so the results of a record name that span, too. It is exported by
the driver once the micro-batch is committed. A task works on whole columns: records without headers, and those whose
trace is not sampled, cost a comparison of their column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suiro.clock import Clock
from suiro.streams_spark.reports import RecordSpan, RecordSpans, pack_report
from suiro.streams_spark.shuffle_message import STAGED, InputPartition, Row
from suiro.telemetry import TRACEPARENT, Parent, Span, Tracing, parent_of, span_id, trace_id

SPANS_MAX = 2_000
"""Of one source task or stream task in a micro-batch. Further records keep the header that they have."""
NS_PER_MS = 1_000_000
_ODD = "[13579bdf]"  # the last digit of the flags of a sampled trace; a later version may have more behind it
_ROUNDS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class RecordTracer:
    """Of one source task or stream task in a micro-batch."""

    def __init__(self, tracing: Tracing, clock: Clock) -> None:
        self._tracing = tracing
        self._clock = clock
        self._spans: list[RecordSpan] = []

    def traced(self, chunks: Iterator[pa.RecordBatch], input_partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The chunks, with other headers where a record is traced."""
        for columns in chunks:
            yield self._traced(columns, input_partition)

    def report(self) -> Iterator[Row]:
        """The task's report to the driver."""
        if self._spans:
            at_ns = self._clock.wall_ms() * NS_PER_MS
            yield STAGED, 0, pack_report(RecordSpans(tuple(self._spans), at_ns))

    def _traced(self, columns: pa.RecordBatch, input_partition: InputPartition) -> pa.RecordBatch:
        headers = columns.column("headers")
        flat = headers.flatten()
        ratio = self._tracing.ratio
        if not len(columns) or (not len(flat) and not ratio):
            return columns
        lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
        names, values = pc.struct_field(flat, "key"), pc.struct_field(flat, "value")
        places = np.flatnonzero(pc.equal(names, TRACEPARENT).to_numpy(zero_copy_only=False))
        rows = np.repeat(np.arange(len(columns)), lengths)[places]
        found = self._parents(values, places, rows)
        begins = self._roots(columns, input_partition, rows) if ratio else ()
        if not found and not len(begins):
            return columns
        written: list[tuple[int, bytes]] = []
        added: list[tuple[int, bytes]] = []
        for row, (place, parent) in found.items():
            if (traceparent := self._begin(columns, row, input_partition, parent)) is not None:
                written.append((place, traceparent))
        for row in begins:
            if (traceparent := self._begin(columns, int(row), input_partition, None)) is not None:
                added.append((int(row), traceparent))
        changed = _with_headers(headers.type, names, values, lengths, sorted(written), added)
        return columns.set_column(columns.schema.get_field_index("headers"), "headers", changed)

    def _parents(self, values: pa.Array, places: np.ndarray, rows: np.ndarray) -> dict[int, tuple[int, Parent]]:
        """Row -> place of the header, and what it says, of sampled traces. The last header of a name counts."""
        if not len(places):
            return {}
        there = pc.take(values, pa.array(places))
        sampled = pc.match_substring_regex(pc.binary_slice(there, 54, 55), _ODD)
        found: dict[int, tuple[int, Parent]] = {}
        for at in np.flatnonzero(pc.fill_null(sampled, False).to_numpy(zero_copy_only=False)):
            if at + 1 < len(rows) and rows[at + 1] == rows[at]:
                continue  # another one follows
            parent = parent_of(there[int(at)].as_py())
            if parent is not None and parent.is_sampled:
                found[int(rows[at])] = int(places[at]), parent
        return found

    def _roots(self, columns: pa.RecordBatch, input_partition: InputPartition, rows: np.ndarray) -> np.ndarray:
        """Records without a traceparent that the sampler chose: by a hash of their place, so a repetition chooses the
        same ones."""
        place = f"{self._tracing.application_id}\0{input_partition.group}\0{input_partition.partition}".encode()
        seed = np.uint64(int.from_bytes(blake2b(place, digest_size=8).digest()))
        mixed = columns.column("offset").to_numpy(zero_copy_only=False).astype(np.uint64) ^ seed
        with np.errstate(over="ignore"):
            for shift, factor in zip((30, 27), _ROUNDS, strict=True):
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
        mixed ^= mixed >> np.uint64(31)
        chosen = (mixed >> np.uint64(11)).astype(np.float64) < self._tracing.ratio * 2.0**53
        chosen[rows] = False
        return np.flatnonzero(chosen)

    def _begin(
        self, columns: pa.RecordBatch, row: int, input_partition: InputPartition, parent: Parent | None
    ) -> bytes | None:
        """Begins a span and returns the header that names it; None if the task has `SPANS_MAX` spans."""
        if len(self._spans) >= SPANS_MAX:
            return None
        offset, stamp = (columns.column(name)[row].as_py() for name in ("offset", "timestamp"))
        place = input_partition.group, input_partition.partition, offset
        facts = (self._tracing.application_id, *place, stamp)
        trace = trace_id(*facts) if parent is None else parent.trace_id
        above = "" if parent is None else parent.span_id
        span = span_id(*facts, trace, above)
        started_ns = self._clock.wall_ms() * NS_PER_MS
        self._spans.append((trace, span, above, *place, started_ns))
        return f"00-{trace}-{span}-{'01' if parent is None else parent.flags}".encode()


def _with_headers(
    kind: pa.DataType,
    names: pa.Array,
    values: pa.Array,
    lengths: np.ndarray,
    written: Sequence[tuple[int, bytes]],
    added: Sequence[tuple[int, bytes]],
) -> pa.Array:
    """`written`: places in the flat arrays and their new values. `added`: rows that get a header behind theirs."""
    if written:
        mask = np.zeros(len(values), np.bool_)
        mask[[place for place, _ in written]] = True
        values = pc.replace_with_mask(values, pa.array(mask), pa.array([value for _, value in written], values.type))
    if added:
        ends = np.cumsum(lengths)
        rows = [row for row, _ in added]
        order = np.insert(np.arange(len(values)), ends[rows], np.arange(len(values), len(values) + len(rows)))
        names = pa.concat_arrays([names, pa.array([TRACEPARENT] * len(rows), names.type)]).take(pa.array(order))
        new = pa.array([value for _, value in added], values.type)
        values = pa.concat_arrays([values, new]).take(pa.array(order))
        lengths = lengths.copy()
        lengths[rows] += 1
    inner = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), inner, type=kind)


def spans_of(reports: Sequence[object], application_id: str, written_ns: int) -> list[Span]:
    """Of a micro-batch whose results were visible to readers at `written_ns`. A record that several tasks read has one
    span, because its id comes from the record's place."""
    found = {
        (trace, span): Span(
            trace_id=trace,
            span_id=span,
            parent_id=above,
            name=f"process {topic}",
            start_ns=started_ns,
            end_ns=max(written_ns, started_ns),
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "process",
                "messaging.destination.name": topic,
                "messaging.destination.partition.id": str(partition),
                "messaging.kafka.offset": offset,
                "messaging.consumer.group.name": application_id,
            },
            events=(("processed", report.processed_ns),),
        )
        for report in reports
        if isinstance(report, RecordSpans)
        for trace, span, above, topic, partition, offset, started_ns in report.spans
    }
    return list(found.values())
