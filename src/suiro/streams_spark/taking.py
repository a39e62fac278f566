"""Builds the blocks for a task from records in the order in which it takes them (`streams.blocks.Taken`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from suiro.streams.blocks import Parcel, Taken
from suiro.streams.records import Origin
from suiro.streams.sources import DeadLetter
from suiro.streams_spark.encoding import parcel_of
from suiro.streams_spark.notes import NO_TIME
from suiro.streams_spark.record_readers import BLOCK_ROWS, ReadColumns, RecordReader, items

TakenRow = tuple[str, ReadColumns, int]
"""The input, and a record as `ReadRow` has it."""


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


def taken(records: Iterable[TakenRow], letters: Letters) -> Iterator[Taken]:
    """One by one: of several queues, or where a record cannot be read."""
    rows: list[TakenRow] = []
    found: list[tuple[int, Parcel]] = []
    for each in records:
        if letters:
            found += letters.take(len(rows))
        rows.append(each)
        if len(rows) == BLOCK_ROWS:
            yield _of_rows(rows, found)
            rows, found = [], []
    if letters:
        found += letters.take(len(rows))
    if rows or found:
        yield _of_rows(rows, found)


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
            (input_, ReadColumns.of_one(read), 0) for read in map(reader.one, items(part)) if read is not None
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


def _of_rows(rows: list[TakenRow], letters: list[tuple[int, Parcel]]) -> Taken:
    inputs = [input_ for input_, _, _ in rows]
    headers = [() if of.headers is None else of.headers[row] for _, of, row in rows]
    carried = [NO_TIME if of.carried is None else of.carried[row] for _, of, row in rows]

    def origin(row: int) -> Origin:
        _, of, place = rows[row]
        return of.origin(place)

    return Taken(
        inputs=inputs[0] if len(set(inputs)) == 1 else inputs,
        keys=[of.keys[row] for _, of, row in rows],
        values=[of.values[row] for _, of, row in rows],
        timestamps=[of.times[row] for _, of, row in rows],  # type: ignore[misc]  # one that is left out is not taken
        origin=origin,
        headers=headers if any(headers) else None,
        carried=carried if max(carried, default=NO_TIME) != NO_TIME else None,
        letters=letters,
    )
