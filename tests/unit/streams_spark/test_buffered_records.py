"""Records that wait in a checkpoint: this release reads what it wrote and what the release before wrote, and refuses
anything else with what to do."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suiro.errors import FatalError
from suiro.streams.stores import OrderedMap
from suiro.streams_spark import buffered_records
from suiro.streams_spark.buffered_records import BufferedRecords, pack_buffered, unpack_buffered
from suiro.streams_spark.shuffle_message import InputPartition
from tests.unit.streams_spark.test_column_task import Engine, Handle, by_key
from tests.unit.streams_spark.test_messages import columns
from tests.vectors.checkpoints.make_held_records import AFTER, BEFORE, TOPOLOGIES, of

PICKLED = Path(__file__).parents[2] / "vectors" / "checkpoints" / "held-records-pickled.json"
SOME_BYTES = st.none() | st.binary(max_size=300)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
HEADER = st.tuples(st.text(max_size=4), SOME_BYTES)
INPUT_PARTITION = InputPartition("topic", 3)


@pytest.mark.parametrize("rules", [False, True])
@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_a_checkpoint_of_the_release_before_is_gone_on_with(name: str, rules: bool) -> None:
    topology = TOPOLOGIES[name]()
    before, after = of(BEFORE, topology), of(AFTER, topology)
    wanted = Engine(topology, f"{name} {rules} wanted")
    wanted.only_rules(rules)
    all_rows = by_key(wanted.batch(before, 100))
    behind = set(wanted.behind)
    # All of it before the other engine is made: a process knows the columnar forms of some runs only.
    others, stores = by_key(wanted.batch(after, 100)), wanted.stores()
    kept = json.loads(PICKLED.read_text(encoding="utf-8"))[name]
    found = Engine(topology, f"{name} {rules} found")
    found.only_rules(rules)
    found.offset, found.behind = kept["offset"], behind
    assert any(b"$held".hex() in data for task in kept["tasks"] for data in task["segments"].values())
    for task in kept["tasks"]:
        segments = {int(number): bytes.fromhex(data) for number, data in task["segments"].items()}
        handle = Handle(bytes.fromhex(task["directory"]), segments)
        found.handles[task["sub"], task["partition"]] = handle
    rows = by_key(found.batch(after, 100))
    if name != "carried" or rules:
        assert rows == others
    all_rows |= others
    assert rows
    assert {key: all_rows[key][-1] for key in rows} == {key: its[-1] for key, its in rows.items()}
    assert found.stores() == stores


@given(
    item=st.tuples(INT64, INT64, SOME_BYTES, SOME_BYTES, st.lists(HEADER, max_size=2).map(tuple))
    | st.tuples(INT64, INT64, SOME_BYTES, SOME_BYTES, st.lists(HEADER, max_size=2).map(tuple), st.none() | INT64)
)
def test_every_record_that_was_pickled_is_read(item: tuple[Any, ...]) -> None:
    (row,) = unpack_buffered(pickle.dumps(item, protocol=5)).to_pylist()
    first = ("offset", "timestamp") if len(item) == 6 else ("timestamp", "time")
    headers = tuple((each["key"], each["value"]) for each in row.get("headers") or ())
    found = (*(row[name] for name in (*first, "key", "value")), headers)
    assert (*found, row.get("extracted"))[: len(item)] == item


def test_nothing_in_a_pickle_is_called() -> None:
    called = []

    class Hostile:
        def __reduce__(self) -> Any:
            return called.append, (1,)

    with pytest.raises(ValueError, match="is not of a record"):
        unpack_buffered(pickle.dumps(print, protocol=5))
    for what in (
        b"\x80\x05cos\nsystem\n(S'true'\ntR.",
        pickle.dumps([1], protocol=5),
        b"\x80\x05\x85.",
        b"\x80",
    ):
        with pytest.raises(ValueError, match="pickled record"):
            unpack_buffered(what)
    assert called == []


@given(batch=st.sampled_from(["offset", "time"]).flatmap(columns).filter(lambda batch: batch.num_rows > 0))
def test_columns_come_back(batch: pa.RecordBatch) -> None:
    assert unpack_buffered(pack_buffered(batch)) == batch


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"\x02" + bytes(7), "format 2, this release reads 1"),
        (b"\x01" + bytes(7), "has no records"),
        (b"\x01\x01" + bytes(6), "not padded"),
        (b"\x01" + bytes(7) + b"\xff\xff\xff\xff\x10\0\0\0", "cannot be read"),
        (pack_buffered(pa.RecordBatch.from_pydict({"key": pa.array([b"k"])})), "has the columns key"),
    ],
    ids=["empty", "later", "none", "padding", "cut", "schema"],
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
