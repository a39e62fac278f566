"""The header `traceparent` of records that are read: taken on where a trace is sampled, and else left alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suiro.clock import ManualClock
from suiro.protocol.columnar import HEADERS_TYPE
from suiro.streams_spark.record_spans import SPANS_MAX, RecordTracer, spans_of
from suiro.streams_spark.reports import unpack_reports
from suiro.streams_spark.shuffle_message import InputPartition
from suiro.telemetry import Tracing, parent_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{SPAN}-01".encode()
UNSAMPLED = f"00-{TRACE}-{SPAN}-00".encode()
INPUT_PARTITION = InputPartition("in", 3)

Headers = list[tuple[str, bytes | None]]


def batch(rows: list[Headers], first: int = 0) -> pa.RecordBatch:
    count = len(rows)
    given = [[{"key": key, "value": value} for key, value in headers] for headers in rows]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array([b"v%d" % n for n in range(count)], pa.binary()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([5] * count, pa.int64()),
            "headers": pa.array(given, HEADERS_TYPE),
        }
    )


def headers_of(columns: pa.RecordBatch) -> list[Headers]:
    rows = columns.column("headers").to_pylist()
    return [[(one["key"], one["value"]) for one in row or ()] for row in rows]


def traced(
    columns: pa.RecordBatch, ratio: float = 0.0, tracer: RecordTracer | None = None
) -> tuple[pa.RecordBatch, list[Any]]:
    made = tracer or RecordTracer(Tracing(application_id="app", ratio=ratio), ManualClock())
    (found,) = made.traced(iter([columns]), INPUT_PARTITION)
    reports = unpack_reports([message for _, _, message in made.report()])
    return found, spans_of(reports, "app", 1_000_000_000_001 * 1_000_000)


def test_a_sampled_trace_goes_on_with_a_span_of_the_application() -> None:
    rows: list[Headers] = [
        [("a", b"1")],
        [("a", None), ("traceparent", SAMPLED), ("b", b"2")],
        [("traceparent", UNSAMPLED)],
        [],
        [("traceparent", b"not one")],
        [("traceparent", None)],
        [("traceparent", SAMPLED.upper())],
        [("traceparent", SAMPLED), ("traceparent", UNSAMPLED)],
        [("traceparent", UNSAMPLED), ("traceparent", SAMPLED)],
    ]
    columns = batch(rows, first=10)
    found, spans = traced(columns)
    new = headers_of(found)
    changed = [at for at, (old, now) in enumerate(zip(rows, new, strict=True)) if old != now]
    assert changed == [1, 8]
    assert new[1] == [("a", None), ("traceparent", f"00-{TRACE}-{spans[0].span_id}-01".encode()), ("b", b"2")]
    assert new[8] == [
        ("traceparent", UNSAMPLED),
        ("traceparent", f"00-{TRACE}-{spans[1].span_id}-01".encode()),
    ]
    assert found.drop_columns("headers") == columns.drop_columns("headers")
    assert found.schema == columns.schema
    assert [(one.trace_id, one.parent_id, one.name) for one in spans] == [(TRACE, SPAN, "process in")] * 2
    assert spans[0].attributes["messaging.kafka.offset"] == 11
    assert spans[0].span_id != spans[1].span_id
    assert spans[0].end_ns > spans[0].start_ns


def test_a_repetition_has_the_same_bytes() -> None:
    columns = batch([[("traceparent", SAMPLED)], [], [("a", b"1")]] * 50)
    assert traced(columns, 0.3)[0] == traced(columns, 0.3)[0]
    pieces = [traced(columns.slice(at, 30), 0.3)[0] for at in range(0, 150, 30)]
    assert [one for piece in pieces for one in headers_of(piece)] == headers_of(traced(columns, 0.3)[0])


def test_columns_without_a_sampled_trace_are_left_as_they_are() -> None:
    for rows in ([[]] * 3, [[("a", b"1")], []], [[("traceparent", UNSAMPLED)]], []):
        columns = batch(rows)
        found, spans = traced(columns)
        assert found is columns
        assert spans == []


def test_a_ratio_begins_traces() -> None:
    columns = batch([[], [("a", b"1")]] * 1_000)
    found, spans = traced(columns, 0.1)
    assert 130 < len(spans) < 270
    assert len({one.trace_id for one in spans}) == len(spans)
    by_offset = {one.attributes["messaging.kafka.offset"]: one for one in spans}
    for offset, (old, new) in enumerate(zip(headers_of(columns), headers_of(found), strict=True)):
        assert new[: len(old)] == old
        if offset not in by_offset:
            assert new == old
            continue
        ((name, value),) = new[len(old) :]
        parent = parent_of(value)
        assert name == "traceparent"
        assert parent.is_sampled
        assert (parent.trace_id, parent.span_id) == (by_offset[offset].trace_id, by_offset[offset].span_id)
        assert by_offset[offset].parent_id == ""


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_spans_are_bounded(ratio: float) -> None:
    rows: list[Headers] = [[("traceparent", SAMPLED)]] if not ratio else [[]]
    tracer = RecordTracer(Tracing(application_id="app", ratio=ratio), ManualClock())
    found, spans = traced(batch(rows * (SPANS_MAX + 7)), ratio, tracer)
    assert len(spans) == SPANS_MAX
    assert headers_of(found)[-7:] == rows * 7


VALUES = st.sampled_from([SAMPLED, UNSAMPLED, None, b"", b"x"])
ROWS = st.lists(st.lists(st.tuples(st.sampled_from(["traceparent", "a"]), VALUES), max_size=3), max_size=12)


@given(rows=ROWS, ratio=st.sampled_from([0.0, 0.5, 1.0]), cut=st.integers(0, 12))
def test_any_headers(rows: list[Headers], ratio: float, cut: int) -> None:
    """Nothing but traceparents changes, in slices too."""
    columns = batch(rows).slice(cut)
    found, spans = traced(columns, ratio)
    found.validate(full=True)
    old, new = headers_of(columns), headers_of(found)
    assert len(old) == len(new)
    changed = 0
    for before, after in zip(old, new, strict=True):
        kept = [one for one in before if one[0] != "traceparent"]
        assert [one for one in after if one[0] != "traceparent"] == kept
        last = next((value for name, value in reversed(before) if name == "traceparent"), b"")
        has_any = any(name == "traceparent" for name, _ in before)
        expected = (has_any and last == SAMPLED) or (not has_any and ratio == 1.0)
        changed += before != after
        if has_any or ratio != 0.5:
            assert (before != after) == expected
    assert changed == len(spans)


def test_a_record_that_two_tasks_read_has_one_span() -> None:
    columns = batch([[("traceparent", SAMPLED)], []])
    tracers = [RecordTracer(Tracing(application_id="app", ratio=1.0), ManualClock()) for _ in range(2)]
    rows = [list(tracer.traced(iter([columns]), INPUT_PARTITION)) for tracer in tracers]
    assert rows[0] == rows[1]
    reports = unpack_reports([message for tracer in tracers for _, _, message in tracer.report()])
    assert len(spans_of(reports, "app", 1_000_000_000_001 * 1_000_000)) == 2
