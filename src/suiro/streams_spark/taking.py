"""Builds the blocks for a task from records in the order in which it takes them (`streams.blocks.Taken`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from suiro.streams.blocks import Parcel, Taken
from suiro.streams.records import Headers, Origin, Record
from suiro.streams.sources import DeadLetter
from suiro.streams_spark.encoding import parcel_of
from suiro.streams_spark.notes import NO_TIME
from suiro.streams_spark.record_readers import BLOCK_ROWS, ReadColumns, RecordReader, items

__all__ = ["Letters", "all_taken", "taken"]

TakenRecord = tuple[str, Record, Origin, int]
"""The input, the record, where it came from, its input partition's time."""


class Letters:
    """Dead letters of records that could not be read, until the block is made in whose place they stand."""

    def __init__(self) -> None:
        self._waiting: list[Parcel] = []

    def add(self, letter: DeadLetter) -> None:
        self._waiting.append(parcel_of(letter))

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take(self, place: int) -> list[tuple[int, Parcel]]:
        found, self._waiting = self._waiting, []
        return [(place, parcel) for parcel in found]


def taken(records: Iterable[TakenRecord], letters: Letters) -> Iterator[Taken]:
    """One by one: of several queues, or where a record cannot be read."""
    making = _Making()
    for input_, record, origin, carried in records:
        if letters:
            making.letters += letters.take(len(making.keys))
        making.add(input_, record, origin, carried)
        if len(making.keys) == BLOCK_ROWS:
            yield making.made()
            making = _Making()
    if letters:
        making.letters += letters.take(len(making.keys))
    if making.keys or making.letters:
        yield making.made()


def all_taken(
    reader: RecordReader,
    input_: str,
    columns: pa.RecordBatch,
    letters: Letters,
) -> Iterator[Taken]:
    """All rows of one queue."""
    for start in range(0, columns.num_rows, BLOCK_ROWS):
        part = columns.slice(start, BLOCK_ROWS)
        found = reader.block(part, takes_all=True)
        if found is not None:
            yield _of_columns(input_, found)
            continue
        singly = (
            (input_, read[0], read[1], read[2]) for read in map(reader.one, items(part)) if read is not None
        )
        yield from taken(singly, letters)


def _of_columns(input_: str, found: ReadColumns) -> Taken:
    if None not in found.times:
        return Taken(
            inputs=input_,
            keys=found.keys,
            values=found.values,
            timestamps=found.times,  # type: ignore[arg-type]
            origin=found.origin,
            headers=found.headers,
            carried=found.carried,
        )
    rows = [row for row, time in enumerate(found.times) if time is not None]
    return Taken(
        inputs=input_,
        keys=[found.keys[row] for row in rows],
        values=[found.values[row] for row in rows],
        timestamps=[time for time in found.times if time is not None],
        origin=lambda row: found.origin(rows[row]),
        headers=None if found.headers is None else [found.headers[row] for row in rows],
        carried=None if found.carried is None else [found.carried[row] for row in rows],
    )


class _Making:
    def __init__(self) -> None:
        self._inputs: list[str] = []
        self.keys: list[object] = []
        self._values: list[object] = []
        self._timestamps: list[int] = []
        self._headers: list[Headers] = []
        self._carried: list[int] = []
        self._origins: list[Origin] = []
        self.letters: list[tuple[int, Parcel]] = []

    def add(self, input_: str, record: Record, origin: Origin, carried: int) -> None:
        self._inputs.append(input_)
        self.keys.append(record.key)
        self._values.append(record.value)
        self._timestamps.append(record.timestamp)
        self._headers.append(record.headers)
        self._carried.append(carried)
        self._origins.append(origin)

    def made(self) -> Taken:
        return Taken(
            inputs=self._inputs[0] if len(set(self._inputs)) == 1 else self._inputs,
            keys=self.keys,
            values=self._values,
            timestamps=self._timestamps,
            origin=self._origins.__getitem__,
            headers=self._headers if any(self._headers) else None,
            carried=self._carried if max(self._carried, default=NO_TIME) != NO_TIME else None,
            letters=self.letters,
        )
