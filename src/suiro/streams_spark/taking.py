"""Builds the blocks for a task from records in the order in which it takes them (`streams.blocks.Taken`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, repeat
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from suiro.streams.blocks import Parcel, Taken
from suiro.streams.records import Origin
from suiro.streams.sources import DeadLetter
from suiro.streams.times import UNKNOWN
from suiro.streams_spark.encoding import parcel_of
from suiro.streams_spark.record_readers import (
    BLOCK_BYTES,
    BLOCK_ROWS,
    ReadColumns,
    RecordReader,
    blocks_of,
    rows_of,
)

TakenRow = tuple[str, ReadColumns, int]
"""The input, and a record as `ReadRow` has it."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of `read` from `start` on. `reached`: the latest timestamp up to each in its queue."""

    input: str
    read: ReadColumns
    start: int
    reached: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.reached)

    def rows(self, column: Sequence[Any] | None, missing: Any = None) -> Iterable[Any]:
        if column is None:
            return repeat(missing, len(self))
        return column[self.start : self.start + len(self)]


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
    size = 0
    found: list[tuple[int, Parcel]] = []
    for each in records:
        if letters:
            found += letters.take(len(rows))
        rows.append(each)
        size += each[1].row_bytes
        if len(rows) == BLOCK_ROWS or size >= BLOCK_BYTES:
            yield _of_rows(rows, found)
            rows, found, size = [], [], 0
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
    for part in blocks_of(columns):
        found = reader.block(part, takes_all=True)
        if found is not None and None not in found.times:
            yield Taken(
                inputs=input_,
                keys=found.keys,
                values=found.values,
                timestamps=found.times,  # type: ignore[arg-type]
                origin=found.origin,
                headers=found.headers,
                carried=found.carried,
            )
        else:
            rows = filter(None, rows_of(reader, part, found))
            yield from taken(((input_, *row) for row in rows), letters)


def together(parts: Sequence[Part]) -> Iterator[Taken]:
    """Rows of several queues, given in the order in which ties are settled."""
    order = np.argsort(np.concatenate([part.reached for part in parts]), kind="stable").tolist()
    firsts = list(accumulate((len(part) for part in parts), initial=0))

    def origin(start: int, row: int) -> Origin:
        place = order[start + row]
        index = bisect_right(firsts, place) - 1
        return parts[index].read.origin(parts[index].start + place - firsts[index])

    def ordered(rows: Callable[[Part], Iterable[Any]]) -> list[Any]:
        found = [each for part in parts for each in rows(part)]
        return [found[place] for place in order]

    has_headers = any(part.read.headers is not None for part in parts)
    is_carried = any(part.read.carried is not None for part in parts)
    inputs = {part.input for part in parts}
    taken_inputs = inputs.pop() if len(inputs) == 1 else ordered(lambda part: repeat(part.input, len(part)))
    keys = ordered(lambda part: part.rows(part.read.keys))
    values = ordered(lambda part: part.rows(part.read.values))
    timestamps = ordered(lambda part: part.rows(part.read.times))
    headers = ordered(lambda part: part.rows(part.read.headers, ())) if has_headers else None
    carried = ordered(lambda part: part.rows(part.read.carried, UNKNOWN)) if is_carried else None
    size = sum(len(part) * part.read.row_bytes for part in parts)
    step = max(1, min(BLOCK_ROWS, BLOCK_BYTES * len(order) // max(size, 1)))
    for start in range(0, len(order), step):
        some = slice(start, start + step)
        yield Taken(
            inputs=taken_inputs if isinstance(taken_inputs, str) else taken_inputs[some],
            keys=keys[some],
            values=values[some],
            timestamps=timestamps[some],
            origin=partial(origin, start),
            headers=None if headers is None else headers[some],
            carried=None if carried is None else carried[some],
        )


def _of_rows(rows: list[TakenRow], letters: list[tuple[int, Parcel]]) -> Taken:
    inputs = [input_ for input_, _, _ in rows]
    headers = [() if of.headers is None else of.headers[row] for _, of, row in rows]
    carried = [UNKNOWN if of.carried is None else of.carried[row] for _, of, row in rows]

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
        carried=carried if max(carried, default=UNKNOWN) != UNKNOWN else None,
        letters=letters,
    )
