"""Decodes rows to records: a whole block of rows at once if all are valid, otherwise row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

import pyarrow as pa

from suiro.streams.records import Headers, Origin, Record
from suiro.streams.serdes.block_forms import decode_rows
from suiro.streams.sources import SourceReader
from suiro.streams.times import UNKNOWN
from suiro.streams.topology.nodes import Repartition
from suiro.streams_spark.buffered_records import pieces
from suiro.streams_spark.changes import read_change, read_changes
from suiro.streams_spark.shuffle_message import InputPartition, headers_list

BLOCK_ROWS = 1024
"""Rows that are read at once. Those of a queue that are not taken then are read again in the next micro-batch."""
BLOCK_BYTES = 4 * 1024 * 1024
"""Of such rows. An operator may make many times as much of a block, and all of it is in memory together."""


@dataclass(slots=True)
class ReadColumns:
    """`times`: None where the record is left out. `carried`: the times of their input partition; None: those of the
    records. `row_bytes`: of a record, on average."""

    keys: list[Any]
    values: list[Any]
    times: Sequence[int | None]
    headers: Sequence[Headers] | None
    carried: list[int] | None
    origin: Callable[[int], Origin]
    row_bytes: int = 0

    @classmethod
    def of_one(cls, record: Record, origin: Origin, carried: int = UNKNOWN, *, row_bytes: int = 0) -> ReadColumns:
        """`carried`: the time of its input partition; `UNKNOWN`: the record's own."""
        return cls(
            [record.key],
            [record.value],
            [record.timestamp],
            [record.headers] if record.headers else None,
            None if carried == UNKNOWN else [carried],
            lambda row: origin,
            row_bytes,
        )


ReadRow = tuple[ReadColumns, int]
"""A record: what was read with it, and its row there."""


class RecordReader(Protocol):
    def one(self, item: Any) -> ReadColumns | None:
        """The record of an item (`items`). None: it is left out."""

    def block(self, columns: pa.RecordBatch, *, takes_all: bool) -> ReadColumns | None:
        """The records of all rows, as `one` gives them. None: they must be read one by one, and nothing has been read.
        `takes_all`: no row will be read again."""


class TopicReader:
    """Records as they are in a topic."""

    def __init__(self, reader: SourceReader, input_partition: InputPartition) -> None:
        self._reader = reader
        self._topic, self._partition = input_partition.group, input_partition.partition

    def one(self, item: Any) -> ReadColumns | None:
        offset, timestamp, key, value, headers, extracted = item
        topic, partition = self._topic, self._partition
        record = self._reader.read(topic, partition, offset, timestamp, key, value, headers, extracted)
        if record is None:
            return None
        origin = Origin(topic, partition, offset, timestamp, headers)
        return ReadColumns.of_one(record, origin, row_bytes=len(key or b"") + len(value or b""))

    def block(self, columns: pa.RecordBatch, *, takes_all: bool) -> ReadColumns | None:
        if "extracted" in columns.schema.names and self._reader.has_extractor:
            return None
        topic, partition = self._topic, self._partition
        headers = headers_list(columns)
        found = self._reader.read_sound(topic, partition, columns, headers, takes_all=takes_all)
        if found is None:
            return None
        keys, values, times = found
        offsets, timestamps = columns.column("offset").to_pylist(), columns.column("timestamp").to_pylist()

        def origin(row: int) -> Origin:
            own = () if headers is None else headers[row]
            return Origin(topic, partition, offsets[row], timestamps[row], own)

        return ReadColumns(keys, values, times, headers, None, origin, columns.nbytes // max(len(keys), 1))


class CarriedReader:
    """Records that came over a repartition."""

    def __init__(self, cut: Repartition, topic: str, partition: int) -> None:
        self._cut = cut
        self._topic, self._partition = topic, partition

    def one(self, item: Any) -> ReadColumns | None:
        timestamp, time, key, value, headers = item
        cut, topic = self._cut, self._topic
        read_key = None if key is None else cut.key.deserialize(topic, key)
        if value is None:
            read_value = None
        elif cut.is_change:
            read_value = read_change(cut.value, topic, value)
        else:
            read_value = cut.value.deserialize(topic, value)
        record = Record(read_key, read_value, timestamp, headers)
        origin = Origin(topic, self._partition, -1, timestamp, headers)
        return ReadColumns.of_one(record, origin, time, row_bytes=len(key or b"") + len(value or b""))

    def block(self, columns: pa.RecordBatch, *, takes_all: bool) -> ReadColumns | None:
        cut, topic, partition = self._cut, self._topic, self._partition
        keys, failed = decode_rows(cut.key, columns.column("key").to_pylist(), topic)
        if failed:
            return None
        data = columns.column("value").to_pylist()
        values: list[Any] | None
        if cut.is_change:
            values = read_changes(cut.value, topic, data)
        else:
            values, failed = decode_rows(cut.value, data, topic)
        if values is None or failed:
            return None
        timestamps, times = columns.column("timestamp").to_pylist(), columns.column("time").to_pylist()
        headers = headers_list(columns)

        def origin(row: int) -> Origin:
            return Origin(topic, partition, -1, timestamps[row], () if headers is None else headers[row])

        return ReadColumns(keys, values, timestamps, headers, times, origin, columns.nbytes // max(len(keys), 1))


def blocks_of(columns: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows, as many as are read at once."""
    for start in range(0, columns.num_rows, BLOCK_ROWS):
        yield from pieces(columns.slice(start, BLOCK_ROWS), BLOCK_ROWS, BLOCK_BYTES)


def reads(reader: RecordReader, columns: pa.RecordBatch) -> Iterator[ReadRow | None]:
    """One for each row; None: the record is left out. Those that are not taken now are read again."""
    for part in blocks_of(columns):
        found = reader.block(part, takes_all=False)
        if found is None:
            for one in map(reader.one, items(part)):
                yield None if one is None else (one, 0)
        else:
            for row, time in enumerate(found.times):
                yield None if time is None else (found, row)


def records_of(reader: RecordReader, columns: pa.RecordBatch) -> Iterator[tuple[Record, Origin]]:
    for of, row in filter(None, reads(reader, columns)):
        time = of.times[row]
        assert time is not None
        headers = () if of.headers is None else of.headers[row]
        yield Record(of.keys[row], of.values[row], time, headers), of.origin(row)


def items(columns: pa.RecordBatch) -> Iterator[Any]:
    """Rows as tuples: offset, timestamp, key, value, headers and the time its extractor gave (None: not asked yet) of
    records of a topic; timestamp, the input partition's time, key, value and headers of those carried over a
    repartition."""
    names = columns.schema.names
    timestamps = columns.column("timestamp").to_pylist()
    keys, values = columns.column("key").to_pylist(), columns.column("value").to_pylist()
    headers = headers_list(columns) or repeat(())
    if "offset" not in names:
        return zip(timestamps, columns.column("time").to_pylist(), keys, values, headers, strict=False)
    extracted = columns.column("extracted").to_pylist() if "extracted" in names else repeat(None)
    return zip(columns.column("offset").to_pylist(), timestamps, keys, values, headers, extracted, strict=False)
