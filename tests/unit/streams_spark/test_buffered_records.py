"""Records that wait in a checkpoint: this release reads what it wrote, and refuses anything else with what to do."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis.strategies import sampled_from

from suiro.errors import FatalError
from suiro.streams.stores import OrderedMap
from suiro.streams_spark import buffered_records
from suiro.streams_spark.buffered_records import BufferedRecords, pack_buffered, unpack_buffered
from suiro.streams_spark.shuffle_message import InputPartition
from tests.unit.streams_spark.test_messages import columns

INPUT_PARTITION = InputPartition("topic", 3)


@given(batch=sampled_from(["offset", "time"]).flatmap(columns).filter(lambda batch: batch.num_rows > 0))
def test_columns_come_back(batch: pa.RecordBatch) -> None:
    assert unpack_buffered(pack_buffered(batch)) == batch


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"\x02" + bytes(7), "format 2, this release reads 1"),
        (b"\x80\x05\x85.", "format 128, this release reads 1"),
        (b"\x01" + bytes(7), "has no records"),
        (b"\x01\x01" + bytes(6), "not padded"),
        (b"\x01" + bytes(7) + b"\xff\xff\xff\xff\x10\0\0\0", "cannot be read"),
        (pack_buffered(pa.RecordBatch.from_pydict({"key": pa.array([b"k"])})), "has the columns key"),
    ],
    ids=["empty", "later", "pickle", "none", "padding", "cut", "schema"],
)
def test_a_damaged_row_is_refused_with_what_to_do(data: bytes, why: str) -> None:
    rows = OrderedMap()
    rows.put(buffered_records.buffered_prefix(INPUT_PARTITION, "in") + bytes(8), data)
    with pytest.raises(FatalError, match=rf"topic-3 that wait for in .*{why}.* rebuild"):
        list(BufferedRecords(rows).all())


def test_many_records_are_kept_in_rows_of_some_and_taken_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffered_records, "ROWS_MAX", 10)
    count = 95
    batch = pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.int64()),
            "key": pa.array([b"k"] * count),
            "value": pa.array([b"v" * number for number in range(count)]),
        }
    )
    rows = OrderedMap()
    buffered = BufferedRecords(rows)
    following = buffered.add(INPUT_PARTITION, "in", 7, batch)
    found = list(buffered.all())
    assert [number for _, _, number, _ in found] == list(range(7, following))
    assert all(columns.num_rows <= 10 for *_, columns in found)
    assert pa.Table.from_batches([columns for *_, columns in found]).to_pydict() == batch.to_pydict()
    monkeypatch.setattr(buffered_records, "BYTES_MAX", 1)
    buffered.clear()
    assert buffered.add(INPUT_PARTITION, "in", 0, batch) == count
