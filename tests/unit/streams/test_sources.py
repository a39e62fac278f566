"""A block of an input partition is read as its records are, one by one: the same records, drops, dead letters and
times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.share import examples

from suiro.errors import RegistryError
from suiro.streams import serdes
from suiro.streams.errors import ProcessingError
from suiro.streams.extractors import (
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    SourceRecord,
    UsePartitionTimeOnInvalidTimestamp,
)
from suiro.streams.records import Headers
from suiro.streams.sources import SourceReader
from suiro.streams.topology.nodes import Node, Source

Cells = list[tuple[int, bytes | None, bytes | None]]


def by_value(record: SourceRecord, partition_time: int) -> int:
    """The value where it is a time, else a step behind the partition's time."""
    return record.value if isinstance(record.value, int) else partition_time - 1


EXTRACTORS: list[Any] = [
    FailOnInvalidTimestamp(),
    LogAndSkipOnInvalidTimestamp(),
    UsePartitionTimeOnInvalidTimestamp(),
    by_value,
]
POLICIES = ["fail", "skip", "dead-letter:bad"]


def columns_of(cells: Cells) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([key for _, key, _ in cells], pa.binary()),
            "value": pa.array([value for _, _, value in cells], pa.binary()),
            "offset": pa.array(range(7, 7 + len(cells)), pa.int64()),
            "timestamp": pa.array([timestamp for timestamp, _, _ in cells], pa.int64()),
        }
    )


class Reading:
    """A reader, and all that it tells."""

    def __init__(self, extractor: Any, policy: str, value: Any = serdes.json) -> None:
        source = Source(topics=("in",), key=serdes.string, value=value, timestamp=extractor)
        self.told: list[Any] = []
        self.reader = SourceReader(
            Node(name="source", parents=(), operator=source),
            on_deserialization_error=policy,
            drop=self.told.append,
            dead_letter=self.told.append,
        )

    def one_by_one(
        self, cells: Cells, headers: Sequence[Headers] | None, extracted: list[int] | None
    ) -> list[Any]:
        found = []
        for row, (timestamp, key, value) in enumerate(cells):
            own = () if headers is None else headers[row]
            time = None if extracted is None else extracted[row]
            record = self.reader.read("in", 3, 7 + row, timestamp, key, value, own, time)
            if record is not None:
                found.append((row, record.key, record.value, record.timestamp))
        return found

    def block(
        self, cells: Cells, headers: Sequence[Headers] | None, extracted: list[int] | None
    ) -> list[Any]:
        found = self.reader.read_block("in", 3, columns_of(cells), headers, extracted)
        rows = range(len(cells)) if found.rows is None else found.rows
        return list(zip(rows, found.keys, found.values, found.timestamps, strict=True))

    def outcome(self, read: Callable[[], list[Any]]) -> Any:
        try:
            found = read()
        except ProcessingError as error:
            # What was told before goes with the transaction that fails.
            return str(error)
        return repr(found), self.told, self.reader.state()


KEYS = st.sampled_from([None, b"a", b"b", b"\xff"])
JSONS = st.sampled_from([None, b"17", b"-4", b'"x"', b'{"a":1}', b"{", b"null"])
CELLS = st.lists(st.tuples(st.integers(-2, 30), KEYS, JSONS), max_size=8)


@given(cells=CELLS, more=CELLS, with_headers=st.booleans(), data=st.data())
@settings(max_examples=examples(100))
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("extractor", EXTRACTORS, ids=lambda it: getattr(it, "__name__", type(it).__name__))
def test_a_block_is_read_as_its_records(
    extractor: Any, policy: str, cells: Cells, more: Cells, with_headers: bool, data: st.DataObject
) -> None:
    times = data.draw(st.none() | st.lists(st.integers(0, 40), min_size=len(more), max_size=len(more)))
    single, block = Reading(extractor, policy), Reading(extractor, policy)
    for part, extracted in ((cells, None), (more, times)):
        headers = [(("n", b"%d" % row),) for row in range(len(part))] if with_headers else None
        wanted = single.outcome(lambda: single.one_by_one(part, headers, extracted))  # noqa: B023
        assert block.outcome(lambda: block.block(part, headers, extracted)) == wanted  # noqa: B023
        if isinstance(wanted, str):
            return


class Counting:
    """A serde of a user, which has no form for blocks."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def serialize(self, topic: str, value: Any) -> bytes:
        raise NotImplementedError

    def deserialize(self, topic: str, data: bytes) -> Any:
        self.asked.append(data)
        if data == b"down":
            raise RegistryError("it does not answer", 503, 50301)
        return int(data)


def test_a_users_serde_is_asked_once_for_each_record() -> None:
    serde = Counting()
    reading = Reading(None, "skip", serde)
    found = reading.block([(1, None, b"1"), (2, None, b"x"), (3, None, None), (4, None, b"4")], None, None)
    assert found == [(0, None, 1, 1), (2, None, None, 3), (3, None, 4, 4)]
    assert serde.asked == [b"1", b"x", b"4"]
    assert reading.told == ["deserialization error"]


def test_no_record_is_left_out_for_a_registry_that_is_down() -> None:
    reading = Reading(None, "skip", Counting())
    with pytest.raises(RegistryError, match="does not answer"):
        reading.block([(1, None, b"1"), (2, None, b"down")], None, None)
    assert reading.told == []
