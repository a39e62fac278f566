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
from suiro.protocol.columnar import HEADERS_TYPE
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
from suiro.streams_spark.record_readers import TopicReader, reads
from suiro.streams_spark.shuffle_message import InputPartition

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

    def one_by_one(self, cells: Cells, headers: Sequence[Headers] | None, extracted: list[int] | None) -> list[Any]:
        found = []
        for row, (timestamp, key, value) in enumerate(cells):
            own = () if headers is None else headers[row]
            time = None if extracted is None else extracted[row]
            record = self.reader.read("in", 3, 7 + row, timestamp, key, value, own, time)
            if record is not None:
                found.append((row, record.key, record.value, record.timestamp))
        return found

    def block(
        self,
        cells: Cells,
        headers: list[Headers] | None = None,
        extracted: list[int] | None = None,
        *,
        takes_all: bool = False,
    ) -> list[Any]:
        columns = columns_of(cells)
        if headers is not None:
            columns = columns.append_column(
                "headers",
                pa.array([[{"key": name, "value": value} for name, value in each] for each in headers], HEADERS_TYPE),
            )
        if extracted is not None:
            columns = columns.append_column("extracted", pa.array(extracted, pa.int64()))
        reader = TopicReader(self.reader, InputPartition("in", 3))
        sound = reader.block(columns, takes_all=True) if takes_all else None
        read = reads(reader, columns) if sound is None else ((sound, row) for row in range(len(cells)))
        rows = [(row, *each) for row, each in enumerate(read) if each is not None]
        found = [(row, of.keys[at], of.values[at], of.times[at]) for row, of, at in rows]
        return [each for each in found if each[3] is not None]

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


@given(cells=CELLS, more=CELLS, with_headers=st.booleans(), takes_all=st.booleans(), data=st.data())
@settings(max_examples=examples(100))
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("extractor", EXTRACTORS, ids=lambda it: getattr(it, "__name__", type(it).__name__))
def test_a_block_is_read_as_its_records(
    extractor: Any,
    policy: str,
    cells: Cells,
    more: Cells,
    with_headers: bool,
    takes_all: bool,
    data: st.DataObject,
) -> None:
    single, block = Reading(extractor, policy), Reading(extractor, policy)
    asked_before = st.lists(st.integers(0, 40), min_size=len(more), max_size=len(more))
    times = data.draw(st.none() | asked_before) if block.reader.has_extractor else None
    for part, extracted in ((cells, None), (more, times)):
        headers = [(("n", b"%d" % row),) for row in range(len(part))] if with_headers else None
        wanted = single.outcome(lambda: single.one_by_one(part, headers, extracted))  # noqa: B023
        found = block.outcome(lambda: block.block(part, headers, extracted, takes_all=takes_all))  # noqa: B023
        assert found == wanted
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


def test_a_users_serde_is_asked_again_where_a_record_of_the_block_is_bad() -> None:
    serde = Counting()
    reading = Reading(None, "skip", serde)
    assert reading.block([(0, None, b"0")]) == [(0, None, 0, 0)]
    found = reading.block([(1, None, b"1"), (2, None, b"x"), (3, None, None), (4, None, b"4")])
    assert found == [(0, None, 1, 1), (2, None, None, 3), (3, None, 4, 4)]
    assert serde.asked == [b"0", *([b"1", b"x", b"4"] * 2)]
    assert reading.told == ["deserialization error"]


def test_no_record_is_left_out_for_a_registry_that_is_down() -> None:
    reading = Reading(None, "skip", Counting())
    with pytest.raises(RegistryError, match="does not answer"):
        reading.block([(1, None, b"1"), (2, None, b"down")])
    assert reading.told == []
