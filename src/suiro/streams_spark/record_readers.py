"""Rows of a lane become records: a block of rows at once where nothing is wrong with any, else row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Protocol

import pyarrow as pa

from suiro.streams.nodes import Repartition
from suiro.streams.records import Origin, Record
from suiro.streams.serdes.block_forms import decode_rows
from suiro.streams.sources import SourceReader
from suiro.streams_spark.changes import read_change
from suiro.streams_spark.notes import NO_TIME
from suiro.streams_spark.shuffle_message import Lane, headers_list

__all__ = ["CarriedReader", "Read", "RecordReader", "TopicReader", "items", "reads"]

Read = tuple[Record, Origin, int]
"""A record, where it came from, and its lane's time; `NO_TIME` where the record's own timestamp is the lane's."""

BLOCK_ROWS = 1024
"""Rows that are read at once. Those of a queue that are not taken then are read again in the next micro-batch."""


class RecordReader(Protocol):
    def one(self, item: Any) -> Read | None:
        """Of an item (`items`). None: the record is left out."""

    def block(self, columns: pa.RecordBatch, *, takes_all: bool) -> Sequence[Read | None] | None:
        """What `one` gives for each row. None: they must go one by one; nothing has happened then. `takes_all`: no row
        will be read again."""


class TopicReader:
    """Records as they are in a topic."""

    def __init__(self, reader: SourceReader, lane: Lane) -> None:
        self._reader = reader
        self._topic, self._partition = lane.group, lane.partition

    def one(self, item: Any) -> Read | None:
        offset, timestamp, key, value, headers, extracted = item
        topic, partition = self._topic, self._partition
        record = self._reader.read(topic, partition, offset, timestamp, key, value, headers, extracted)
        if record is None:
            return None
        return record, Origin(topic, partition, offset, timestamp, headers), NO_TIME

    def block(self, columns: pa.RecordBatch, *, takes_all: bool) -> Sequence[Read | None] | None:
        if "extracted" in columns.schema.names:
            return None
        topic, partition = self._topic, self._partition
        headers = headers_list(columns)
        found = self._reader.read_sound(topic, partition, columns, headers, takes_all=takes_all)
        if found is None:
            return None
        return [
            None
            if time is None
            else (Record(key, value, time, own), Origin(topic, partition, offset, timestamp, own), NO_TIME)
            for key, value, time, offset, timestamp, own in zip(
                *found,
                columns.column("offset").to_pylist(),
                columns.column("timestamp").to_pylist(),
                repeat(()) if headers is None else headers,
                strict=False,
            )
        ]


class CarriedReader:
    """Records that came over a repartition."""

    def __init__(self, cut: Repartition, topic: str, partition: int) -> None:
        self._cut = cut
        self._topic, self._partition = topic, partition

    def one(self, item: Any) -> Read | None:
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
        return record, Origin(topic, self._partition, -1, timestamp, headers), time

    def block(self, columns: pa.RecordBatch, *, takes_all: bool) -> Sequence[Read | None] | None:
        cut, topic, partition = self._cut, self._topic, self._partition
        if cut.is_change:
            return None
        keys, failed = decode_rows(cut.key, columns.column("key").to_pylist(), topic)
        if failed:
            return None
        values, failed = decode_rows(cut.value, columns.column("value").to_pylist(), topic)
        if failed:
            return None
        timestamps, times = columns.column("timestamp").to_pylist(), columns.column("time").to_pylist()
        return [
            (Record(key, value, timestamp, headers), Origin(topic, partition, -1, timestamp, headers), time)
            for key, value, timestamp, time, headers in zip(
                keys, values, timestamps, times, headers_list(columns) or repeat(()), strict=False
            )
        ]


def reads(reader: RecordReader, columns: pa.RecordBatch, *, takes_all: bool) -> Iterator[Read | None]:
    """One for each row; None: the record is left out. `takes_all`: the caller goes on to the end."""
    for start in range(0, columns.num_rows, BLOCK_ROWS):
        part = columns.slice(start, BLOCK_ROWS)
        found = reader.block(part, takes_all=takes_all)
        yield from map(reader.one, items(part)) if found is None else found


def items(columns: pa.RecordBatch) -> Iterator[Any]:
    """Rows as tuples: offset, timestamp, key, value, headers and the time its extractor gave (None: not asked yet) of
    records of a topic; timestamp, the lane's time, key, value and headers of those carried over a repartition."""
    names = columns.schema.names
    timestamps = columns.column("timestamp").to_pylist()
    keys, values = columns.column("key").to_pylist(), columns.column("value").to_pylist()
    headers = headers_list(columns) or repeat(())
    if "offset" not in names:
        return zip(timestamps, columns.column("time").to_pylist(), keys, values, headers, strict=False)
    extracted = columns.column("extracted").to_pylist() if "extracted" in names else repeat(None)
    return zip(
        columns.column("offset").to_pylist(), timestamps, keys, values, headers, extracted, strict=False
    )
