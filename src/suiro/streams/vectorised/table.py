"""The rows of a table by slot: one buffer of bytes, and the position of each row. Its content is as in `KeyValueStore`.

A row is its timestamp (int64) and the value as the store's serde writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suiro.streams.vectorised import kernels
from suiro.streams.vectorised.key_index import BinaryView, KeyIndex, Slots, gathered, grown, read_only

_Int64s = npt.NDArray[np.int64]
_ROOM = 1024
_BYTES = 64 * 1024
_STAMP = 8


@dataclass(frozen=True, slots=True)
class Met:
    """Rows of a table at some moment, by the record that met each: the place and the size of its bytes; size -1 if
    there was no row. Valid until the rows' changes are taken."""

    places: _Int64s
    sizes: _Int64s

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        return self.sizes >= 0

    def take(self, rows: Any) -> Met:
        """`rows`: indices, a mask or a slice."""
        return Met(self.places[rows], self.sizes[rows])

    def distinct(self) -> tuple[Met, _Int64s]:
        """Returns each row once, and for each record which of them it met."""
        _, first, each = np.unique(np.where(self.found, self.places, -1), return_index=True, return_inverse=True)
        return self.take(first), each

    def pieces(self, rows_max: int, bytes_max: int) -> Iterator[slice]:
        """Divides the rows into pieces of so many rows and bytes. A larger row is a piece of its own."""
        ends = np.cumsum(np.maximum(self.sizes, 0))
        start = taken = 0
        while start < len(ends):
            end = int(np.searchsorted(ends, taken + bytes_max, side="right"))
            end = max(start + 1, min(end, start + rows_max))
            yield slice(start, end)
            start, taken = end, int(ends[end - 1])


class TableRows:
    def __init__(self) -> None:
        self._clear()

    def _clear(self, expected: int = _ROOM, size: int = _BYTES) -> None:
        self._index = KeyIndex(expected)
        self._places = np.zeros(expected, np.int64)
        self._sizes = np.full(expected, -1, np.int64)
        self._dirty = np.zeros(expected, np.uint8)
        self._buffer = np.empty(size, np.uint8)
        self._end = 0

    def __len__(self) -> int:
        return int(np.count_nonzero(self._sizes[: len(self._index)] >= 0))

    @property
    def nbytes(self) -> int:
        return self._index.nbytes + int(self._buffer.nbytes + self._places.nbytes + self._sizes.nbytes)

    def load(self, keys: pa.Array, rows: pa.Array) -> None:
        """Loads rows as a store holds them. A later row of a key replaces an earlier one; null deletes it."""
        view = BinaryView.of(rows)
        slots = self._slots(keys)
        self._reserve(int(view.offsets[-1]) - int(view.offsets[0]))
        self._end = kernels.put_rows(
            *view.arguments, read_only(slots), self._buffer, self._places, self._sizes, self._end
        )

    def change(self, keys: pa.Array, rows: pa.Array) -> None:
        """Loads rows as changes of this batch."""
        self.load(keys, rows)
        self._dirty[self._index.find(keys)] = 1

    def take_changes(self) -> tuple[pa.ChunkedArray, pa.ChunkedArray] | None:
        """Returns keys and rows that changed since the last call, null for deleted rows; None if nothing changed."""
        slots = np.flatnonzero(self._dirty[: len(self._index)]).astype(np.int32)
        if len(slots) == 0:
            return None
        self._dirty[slots] = 0
        found = self._at(slots)
        self._compact()
        return found

    def rows(self) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        return self._at(np.flatnonzero(self._sizes[: len(self._index)] >= 0).astype(np.int32))

    def row(self, key: bytes) -> bytes | None:
        """Returns the row of a key as a store holds it; None if there is none."""
        met = self.look_up(pa.array([key], pa.binary()))
        found: bytes | None = gathered(self._buffer, met.places, met.sizes, what="rows")[0].as_py()
        return found

    def look_up(self, keys: pa.Array) -> Met:
        """Returns the rows of these keys."""
        slots = self._index.find(keys)
        known = slots >= 0
        safe = np.where(known, slots, 0)
        return Met(self._places[safe], np.where(known, self._sizes[safe], -1))

    def values(self, met: Met) -> pa.Array:
        """Returns the rows without the timestamps in front; null if there is no row."""
        return gathered(self._buffer, met.places + _STAMP, met.sizes - _STAMP, what="rows")

    def meet(
        self,
        *,
        order: _Int64s,
        table_rows: _Int64s,
        keys: pa.Array,
        values: pa.Array,
        timestamps: _Int64s,
    ) -> Met:
        """Takes table rows and stream records in one order, and returns the row that each record meets.

        `keys`: those of both. `table_rows`: which of `values` a row puts into the table; -1 for a record. A table row
        meets none.
        """
        slots = self._slots(keys)
        view = BinaryView.of(values)
        self._reserve(int(view.offsets[-1]) - int(view.offsets[0]) + _STAMP * len(values))
        places = np.zeros(len(slots), np.int64)
        sizes = np.empty(len(slots), np.int64)
        self._end = kernels.meet_rows(
            read_only(order),
            read_only(table_rows),
            read_only(slots),
            *view.arguments,
            read_only(timestamps),
            self._buffer,
            self._places,
            self._sizes,
            self._end,
            places,
            sizes,
        )
        touched = slots[table_rows >= 0]
        self._dirty[touched[touched >= 0]] = 1
        return Met(places, sizes)

    def _at(self, slots: Slots) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """Returns keys and rows, in equal chunks."""
        pieces = self._index.pieces(slots, self._sizes[slots])
        keys = [self._index.keys(piece) for piece in pieces]
        rows = [gathered(self._buffer, self._places[piece], self._sizes[piece], what="rows") for piece in pieces]
        return pa.chunked_array(keys, pa.binary()), pa.chunked_array(rows, pa.binary())

    def _slots(self, keys: pa.Array) -> Slots:
        slots = self._index.slots(keys)
        count = len(self._index)
        if count > len(self._places):
            size = max(count, 2 * len(self._places))
            self._places = grown(self._places, size, 0)
            self._sizes = grown(self._sizes, size, -1)
            self._dirty = grown(self._dirty, size, 0)
        return slots

    def _reserve(self, size: int) -> None:
        needed = self._end + size
        if needed > len(self._buffer):
            self._buffer = grown(self._buffer, max(needed, 2 * len(self._buffer)), 0)

    def _compact(self) -> None:
        """Frees the bytes of old rows and the deleted keys when they are the larger part."""
        count = len(self._index)
        sizes = self._sizes[:count]
        live = int(sizes[sizes >= 0].sum())
        if self._end < 2 * live + _BYTES and count < 2 * len(self) + 4096:
            return
        keys, rows = self.rows()
        self._clear(max(_ROOM, len(keys)), max(_BYTES, 2 * live))
        for piece in zip(keys.chunks, rows.chunks, strict=True):
            self.load(*piece)
