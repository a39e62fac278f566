"""Rows to record batches: where they go, in which order, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from suiro.clock import ManualClock
from suiro.errors import UsageError
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.records import Record, decode_batch
from suiro.spark.encoding import check_columns, encoded_rows
from suiro.spark.options import SinkOptions
from suiro.spark.staging import StagingWriter

PARTITIONS = {"out": 3, "other": 2}


def encoded(rows: list[pa.RecordBatch], **options: str) -> list[tuple[str, int, Record]]:
    parsed = SinkOptions.parse({"kafka.bootstrap.servers": "h:1"} | options)
    with StagingWriter(None, "0-0") as writer:
        clock = ManualClock(wall_ms=1234)
        counts = PARTITIONS.__getitem__
        for batch in encoded_rows(rows, parsed, partition_count=counts, task_index=1, clock=clock):
            writer.add(*batch)
        staged = writer.finish()
    return [(topic, place, record) for topic, place, data, _ in staged.batches() for record in decode_batch(data)]


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_keys_go_where_kafkas_producers_send_them_and_keep_their_order() -> None:
    keys = [f"k{n % 5}" for n in range(50)]
    found = encoded([rows(key=keys, value=[str(n) for n in range(50)])], topic="out")
    assert all(place == partition_for_key(record.key or b"", 3) for _, place, record in found)
    for key in set(keys):
        of_key = [int(record.value or b"") for _, _, record in found if record.key == key.encode()]
        assert of_key == sorted(of_key)
        assert len(of_key) == 10


def test_rows_without_a_key_go_to_one_partition() -> None:
    found = encoded([rows(value=["a", None, "c"])], topic="out")
    assert [(place, record.key, record.value) for _, place, record in found] == [
        (1, None, b"a"),
        (1, None, None),
        (1, None, b"c"),
    ]
    assert {record.timestamp for _, _, record in found} == {1234}


def test_a_topic_column_and_chosen_partitions() -> None:
    batch = rows(
        topic=["out", "other", "out"],
        value=["a", "b", "c"],
        partition=pa.array([2, None, 0], pa.int32()),
        timestamp=pa.array([5_999, None, -1], pa.timestamp("us", tz="UTC")),
    )
    found = sorted((topic, place, record.value, record.timestamp) for topic, place, record in encoded([batch]))
    assert found == [("other", 1, b"b", 1234), ("out", 0, b"c", -1), ("out", 2, b"a", 5)]
    assert {topic for topic, _, _ in encoded([batch], topic="out")} == {"out"}


def test_empty_input_writes_nothing() -> None:
    assert encoded([]) == []
    assert encoded([rows(value=pa.array([], pa.string()))], topic="out") == []


def test_what_cannot_be_placed_is_refused() -> None:
    with pytest.raises(UsageError, match="null in column topic"):
        encoded([rows(topic=pa.array([None], pa.string()), value=["a"])])
    with pytest.raises(UsageError, match="holds 3; topic 'out' has partitions 0 to 2"):
        encoded([rows(value=["a"], partition=pa.array([3], pa.int32()))], topic="out")


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"id": "bigint", "value": "string"}, "column 'id'"),
        ({"value": "bigint"}, "column 'value' is bigint"),
        ({"key": "string", "topic": "string"}, "needs a column named value"),
        ({"value": "string"}, "no topic"),
        ({"value": "string", "topic": "string", "timestamp": "bigint"}, "timestamp"),
    ],
)
def test_columns_that_cannot_be_written(types: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_columns(types, has_topic=False)
