"""Messages between tasks and reports to the driver: what was packed comes back; what is not that is refused with a
clear error."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suiro.errors import FatalError
from suiro.protocol.columnar import HEADERS_TYPE
from suiro.spark import CommitMessage, MicroBatchIdentity, OffsetRange, PackedReport, StagedRecords
from suiro.spark.reports import pack_commit, unpack_commit
from suiro.streams_spark import shuffle_message
from suiro.streams_spark.input_reader import range_columns
from suiro.streams_spark.processor import _frames
from suiro.streams_spark.rebuild import BufferedFrom
from suiro.streams_spark.reports import (
    Counts,
    Report,
    TaskReport,
    pack_report,
    unpack_reports,
)
from suiro.streams_spark.shuffle_message import (
    InputPartition,
    Row,
    ShuffleMessage,
    in_batches,
    rows_batches,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SOME_BYTES = st.none() | st.binary(max_size=8)


@st.composite
def columns(draw: st.DrawFn, place: str) -> pa.RecordBatch:
    rows = draw(st.lists(st.tuples(INT64, INT64, SOME_BYTES, SOME_BYTES), max_size=4))
    found = {
        place: pa.array([row[0] for row in rows], pa.int64()),
        "timestamp": pa.array([row[1] for row in rows], pa.int64()),
        "key": pa.array([row[2] for row in rows], pa.binary()),
        "value": pa.array([row[3] for row in rows], pa.binary()),
    }
    if draw(st.booleans()):
        headers = draw(st.lists(st.tuples(st.text(max_size=3), SOME_BYTES), max_size=2))
        found["headers"] = pa.array([[{"key": k, "value": v} for k, v in headers]] * len(rows), HEADERS_TYPE)
    return pa.RecordBatch.from_pydict(found)


@st.composite
def messages(draw: st.DrawFn) -> ShuffleMessage:
    kind: Literal["raw", "carried", "tick", "range"] = draw(st.sampled_from(["raw", "carried", "tick", "range"]))
    found = {
        "raw": columns("offset"),
        "carried": columns("time"),
        "tick": st.none(),
        "range": st.builds(
            range_columns,
            st.builds(OffsetRange, topic=st.just("t"), partition=st.just(0), start=INT64, end=INT64),
        ),
    }
    return ShuffleMessage(
        kind=kind,
        input_partition=draw(st.none() | st.builds(InputPartition, st.text(max_size=6), st.integers(0, (1 << 31) - 1))),
        input=draw(st.text(max_size=6)),
        sequence=draw(st.integers(0, 1 << 30)),
        behind=draw(st.booleans()),
        time=draw(INT64),
        clock=draw(st.none() | INT64),
        replayed=draw(st.booleans()),
        paused=draw(st.none() | INT64),
        rewrites=draw(st.booleans()),
        columns=draw(found[kind]),
    )


@given(message=messages())
def test_a_message_comes_back(message: ShuffleMessage) -> None:
    assert ShuffleMessage.unpack(message.pack()) == message


@given(message=messages(), data=st.data())
@settings(max_examples=300)
def test_a_damaged_message_is_refused_or_is_another_message(message: ShuffleMessage, data: Any) -> None:
    whole = message.pack()
    length = data.draw(st.integers(0, len(whole)))
    damaged = bytearray(whole[:length])
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(FatalError):
        found = ShuffleMessage.unpack(bytes(damaged))
        assert found.columns is None or found.columns.to_pydict() is not None


def test_a_large_message_is_compressed_and_damage_is_refused() -> None:
    rows = 2_000
    found = {
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array([5] * rows, pa.int64()),
        "key": pa.array([b"%d" % row for row in range(rows)], pa.binary()),
        "value": pa.array([b'{"state": "OR"}' if row % 7 else None for row in range(rows)], pa.binary()),
    }
    message = ShuffleMessage(
        kind="raw", input_partition=InputPartition("t", 0), columns=pa.RecordBatch.from_pydict(found)
    )
    whole = message.pack()
    assert message.columns is not None
    assert len(whole) < message.columns.nbytes // 2
    assert ShuffleMessage.unpack(whole) == message
    chance = random.Random(1)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        with suppress(FatalError):
            assert ShuffleMessage.unpack(bytes(damaged)).pack()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "format none"),
        (pickle.dumps(("tick", None)), "format 80"),
        (b"\x02" + bytes(48), "format 02, this release reads 01"),
        (b"\x01" + bytes(5), "requires a buffer"),
        (b"\x01\x09" + bytes(46), "kind 9"),
        (b"\x01\x03\x40" + bytes(45), "flags 0x40"),
        (b"\x01\x03" + bytes(38) + b"\xff\xff\xff\xff" + bytes(4), "cut off"),
        (b"\x01\x00" + bytes(46), "raw has no columns"),
        (b"\x01\x00" + bytes(46) + b"\xff" * 8, "cannot be read"),
    ],
)
def test_why_a_message_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(FatalError, match=why):
        ShuffleMessage.unpack(data)


def test_columns_of_another_schema_are_refused() -> None:
    wrong = pa.RecordBatch.from_pydict({"key": pa.array([1])})
    with pytest.raises(FatalError, match="raw has the columns key"):
        ShuffleMessage.unpack(ShuffleMessage(kind="raw", input_partition=None, columns=wrong).pack())


def test_a_range_has_one_start_and_one_end() -> None:
    numbers, topic_ids = pa.array([1, 2]), pa.nulls(2, pa.string())
    columns = pa.RecordBatch.from_pydict({"start": numbers, "end": numbers, "topic_id": topic_ids})
    without_end = columns.slice(0, 1).set_column(1, "end", pa.nulls(1, pa.int64()))
    for wrong in (columns, columns.slice(0, 0), without_end):
        with pytest.raises(FatalError, match="not one start"):
            ShuffleMessage.unpack(ShuffleMessage(kind="range", input_partition=None, columns=wrong).pack())


IDENTITY = MicroBatchIdentity(query_id="q", run_id="r", batch_id=7)
STAGED_FILE = StagedRecords(
    topics=("a", "b"),
    partitions=(("a", 0), ("b", 3)),
    record_count=5,
    size_bytes=99,
    path="/s/7-1.batches",
    digests=bytes(range(64)),
)
REPORTS: dict[str, Report] = {
    "file": CommitMessage(STAGED_FILE, IDENTITY, "/s"),
    "inline": CommitMessage(StagedRecords(topics=("ü",), inline=b"\0\xff" * 9), IDENTITY, None),
    "nothing": CommitMessage(StagedRecords(), IDENTITY, None),
    "held": BufferedFrom("topic", 3, 17, -1),
    "dropped": Counts("dropped", {"null key": 2, "late": 1}),
    "rows": Counts("rows", {"KSTREAM-SOURCE-0000000000": 3}),
    "task": TaskReport(
        sub_topology=1, partition=2, stores={"counts": (3, 400)}, buffered={"in": 5}, condition="idling"
    ),
}


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_a_report_comes_back(name: str) -> None:
    assert unpack_reports([pack_report(REPORTS[name])]) == [REPORTS[name]]


@pytest.mark.parametrize("name", sorted(REPORTS))
@given(data=st.data())
@settings(max_examples=80)
def test_a_damaged_report_is_refused_or_is_another_report(name: str, data: Any) -> None:
    whole = bytearray(pack_report(REPORTS[name]))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(FatalError):
        unpack_reports([bytes(whole[: data.draw(st.integers(0, len(whole)))])])


def test_a_report_of_another_kind_is_no_commit_message() -> None:
    with pytest.raises(FatalError, match="kind 'other', not 'commit'"):
        unpack_commit(PackedReport("other", {}).pack())
    message = REPORTS["file"]
    assert isinstance(message, CommitMessage)
    assert unpack_commit(pack_commit(message)) == message


def test_messages_that_are_too_many_for_a_column_come_in_several_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A column of Arrow takes 2 GiB: a wide repartition, or a global table with many tasks, may send more at once."""
    monkeypatch.setattr(shuffle_message, "BATCH_BYTES_MAX", 10)
    rows = [(0, place, bytes(size)) for place, size in enumerate((6, 4, 1, 30, 0))]
    batches = list(rows_batches(rows))
    frames = list(_frames(iter(rows)))
    assert [batch.num_rows for batch in batches] == [len(frame) for frame in frames] == [2, 1, 1, 1]
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == rows
    assert [tuple(row) for frame in frames for row in frame.itertuples(index=False)] == rows
    assert list(rows_batches([])) == list(_frames([])) == []


def test_a_task_hands_messages_on_before_many_have_gathered() -> None:
    data = bytes(1 << 20)
    made: list[int] = []

    def messages() -> Iterator[Row]:
        for place in range(100):
            made.append(place)
            yield 0, place, data

    assert next(in_batches(messages()))
    assert len(made) <= 20
