"""Decodes rows to records: a whole block of rows at once if all are valid, otherwise row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

import pyarrow as pa

from suiro.streams.records import Headers, Origin, Record
from suiro.streams.serdes.block_forms import decode_block
from suiro.streams.sources import SourceReader
from suiro.streams.topology.nodes import Repartition
from suiro.streams.vectorised.columns import headers_in, headers_of
from suiro.streams_spark.buffered_records import pieces
from suiro.streams_spark.changes import read_changes
from suiro.streams_spark.shuffle_message import InputPartition

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
    def of_one(cls, record: Record, origin: Origin, *, row_bytes: int = 0) -> ReadColumns:
        return cls(
            [record.key],
            [record.value],
            [record.timestamp],
            [record.headers] if record.headers else None,
            None,
            lambda row: origin,
            row_bytes,
        )


ReadRow = tuple[ReadColumns, int]
"""A record: what was read with it, and its row there."""


class RecordReader(Protocol):
    def block(self, columns: pa.RecordBatch, *, takes_all: bool) -> ReadColumns | None:
        """The records of all rows. None: they must be read one by one, and nothing has been read. `takes_all`: no row
        will be read again."""

    def singly(self, columns: pa.RecordBatch) -> Iterator[ReadColumns | None]:
        """The records of all rows, each when it is asked for; None: it is left out."""


class TopicReader:
    """Records as they are in a topic."""

    def __init__(self, reader: SourceReader, input_partition: InputPartition) -> None:
        self._reader = reader
        self._topic, self._partition = input_partition.group, input_partition.partition

    def singly(self, columns: pa.RecordBatch) -> Iterator[ReadColumns | None]:
        topic, partition = self._topic, self._partition
        names = columns.schema.names
        rows = zip(
            *(columns.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value")),
            headers_of(headers_in(columns)) or repeat(()),
            columns.column("extracted").to_pylist() if "extracted" in names else repeat(None),
            strict=False,
        )
        for offset, timestamp, key, value, headers, extracted in rows:
            record = self._reader.read(topic, partition, offset, timestamp, key, value, headers, extracted)
            if record is None:
                yield None
                continue
            origin = Origin(topic, partition, offset, timestamp, headers)
            yield ReadColumns.of_one(record, origin, row_bytes=len(key or b"") + len(value or b""))

    def block(self, columns: pa.RecordBatch, *, takes_all: bool) -> ReadColumns | None:
        if "extracted" in columns.schema.names and self._reader.has_extractor:
            return None
        topic, partition = self._topic, self._partition
        headers = headers_of(headers_in(columns))
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
    """Records that came over a repartition. One that cannot be read ends the task: another task has written it."""

    def __init__(self, cut: Repartition, topic: str, partition: int) -> None:
        self._cut = cut
        self._topic, self._partition = topic, partition

    def singly(self, columns: pa.RecordBatch) -> Iterator[ReadColumns | None]:
        raise NotImplementedError("they are always read in blocks")

    def block(self, columns: pa.RecordBatch, *, takes_all: bool) -> ReadColumns:
        cut, topic, partition = self._cut, self._topic, self._partition
        keys = decode_block(cut.key, columns.column("key").to_pylist(), topic)
        values = (read_changes if cut.is_change else decode_block)(
            cut.value, columns.column("value").to_pylist(), topic
        )
        timestamps, times = columns.column("timestamp").to_pylist(), columns.column("time").to_pylist()
        headers = headers_of(headers_in(columns))

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
        yield from rows_of(reader, part, reader.block(part, takes_all=False))


def rows_of(reader: RecordReader, part: pa.RecordBatch, found: ReadColumns | None) -> Iterator[ReadRow | None]:
    """`found`: what the reader gave for the part as a block."""
    if found is None:
        for one in reader.singly(part):
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
