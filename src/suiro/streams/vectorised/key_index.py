"""Maps keys to slots: a hash table over binary keys, filled and queried a column at a time.

Slots are dense and in the order in which keys were first seen. A key stays until the index is dropped; what belongs to
a slot is kept by its user, in arrays.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from suiro.errors import FatalError
from suiro.streams.vectorised import kernels

Slots = npt.NDArray[np.int32]
_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]

_CAPACITY = 1024
_ARENA = 16 * 1024
PIECE_BYTES = 256 * 1024 * 1024
"""The bytes of keys and rows that go into one array. A binary array takes 2 GiB."""


@dataclass(frozen=True, slots=True)
class BinaryView:
    """A binary column as kernels take it: offsets, data, bitmap, the bitmap's first bit, has nulls."""

    offsets: Slots
    data: _Bytes
    bitmap: _Bytes
    first_bit: int
    has_nulls: bool

    @classmethod
    def of(cls, column: pa.Array) -> BinaryView:
        if column.type not in (pa.binary(), pa.string()):
            column = column.cast(pa.binary())
        bitmap, offsets, data = column.buffers()
        has_nulls = column.null_count > 0
        rows = len(column)
        if offsets is None or offsets.size == 0:  # an empty array may come without
            found: Any = np.zeros(1, np.int32)
        else:
            found = np.frombuffer(offsets, np.int32, rows + 1, 4 * column.offset)
        return cls(
            read_only(np.require(found, requirements=["A", "C"])),
            _EMPTY if data is None else read_only(np.frombuffer(data, np.uint8)),
            read_only(np.frombuffer(bitmap, np.uint8)) if has_nulls else _EMPTY,
            column.offset,
            has_nulls,
        )

    @property
    def arguments(self) -> tuple[Slots, _Bytes, _Bytes, int, bool]:
        return self.offsets, self.data, self.bitmap, self.first_bit, self.has_nulls


class KeyIndex:
    __slots__ = ("_arena", "_result", "_starts", "_table")

    def __init__(self, expected: int = _CAPACITY // 2) -> None:
        """`expected` keys go in before it has to grow."""
        self._table = np.zeros(_power_above(max(_CAPACITY, 2 * expected)), np.int64)
        self._arena = np.empty(max(_ARENA, 16 * expected), np.uint8)
        self._starts = np.zeros(max(_CAPACITY, expected) + 1, np.int64)
        self._result = np.array([0, int.from_bytes(os.urandom(8), signed=True) | 1])

    def __len__(self) -> int:
        return int(self._result[0])

    @property
    def nbytes(self) -> int:
        return int(self._table.nbytes + self._arena.nbytes + self._starts.nbytes)

    def slots(self, keys: pa.Array) -> Slots:
        """Returns the slot of each key, a new one for an unknown key; -1 for null."""
        view = BinaryView.of(keys)
        rows = len(keys)
        slots = np.empty(rows, np.int32)
        row = 0
        while True:
            row = kernels.add_keys(*view.arguments, row, self._table, self._arena, self._starts, self._result, slots)
            if row >= rows:
                return slots
            self._grow(int(view.offsets[row + 1]) - int(view.offsets[row]))

    def find(self, keys: pa.Array) -> Slots:
        """Returns the slot of each key; -1 if the key is unknown or null."""
        slots = np.empty(len(keys), np.int32)
        kernels.find_keys(*BinaryView.of(keys).arguments, self._table, self._arena, self._starts, self._result, slots)
        return slots

    def keys(self, slots: Slots) -> pa.Array:
        """Returns the keys of these slots."""
        return gathered(self._arena, self._starts[slots], self._sizes(slots), what="keys")

    def pieces(self, slots: Slots, sizes: _Int64s) -> list[Slots]:
        """Divides slots into parts, each with keys and rows for one array. `sizes`: those of the rows."""
        ends = np.cumsum(self._sizes(slots) + np.maximum(sizes, 0))
        return np.split(slots, np.flatnonzero(np.diff(ends // PIECE_BYTES)) + 1)

    def window_keys(self, slots: Slots, starts: _Int64s) -> pa.Array:
        """Returns the keys of a window store: key, start, and sequence number 0."""
        offsets = _offsets_of(self._sizes(slots) + 12, "keys")
        out = np.empty(offsets[-1], np.uint8)
        kernels.gather_window_keys(self._arena, self._starts, read_only(slots), read_only(starts), offsets, out)
        return binary_array(offsets, out)

    def _sizes(self, slots: Slots) -> _Int64s:
        sizes: _Int64s = self._starts[slots + 1] - self._starts[slots]
        return sizes

    def _grow(self, size: int) -> None:
        """Makes room for one more key of this size, and for as many again as there are."""
        count = len(self)
        if count + 2 > len(self._starts):
            self._starts = grown(self._starts, 2 * len(self._starts))
        needed = int(self._starts[count]) + size
        if needed > len(self._arena):
            self._arena = grown(self._arena, max(needed, 2 * len(self._arena)))
        if 2 * (count + 1) > len(self._table):
            self._table = np.zeros(4 * len(self._table), np.int64)
            kernels.rehash(self._table, self._arena, self._starts, self._result)


def int64s(column: pa.Array, start: int, stop: int | None) -> _Int64s:
    """Returns the big-endian number between two places of each row. There are no nulls."""
    found = pc.binary_slice(column, start, stop)
    return np.frombuffer(found.buffers()[2], ">i8", len(found)).astype(np.int64)


def binary_array(offsets: Slots, data: _Bytes, bitmap: _Bytes | None = None, nulls: int = 0) -> pa.Array:
    """Returns a binary column of these buffers."""
    validity = None if bitmap is None or nulls == 0 else pa.py_buffer(bitmap)
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls
    )


def gathered(data: _Bytes, places: _Int64s, sizes: _Int64s, *, what: str) -> pa.Array:
    """Returns a binary column of pieces of the data; null where the size is negative. `what`: for an error."""
    offsets = _offsets_of(np.maximum(sizes, 0), what)
    out = np.empty(offsets[-1], np.uint8)
    bitmap = np.zeros((len(places) + 7) // 8, np.uint8)
    nulls = kernels.gather_rows(read_only(data), read_only(places), read_only(sizes), offsets, out, bitmap)
    return binary_array(offsets, out, bitmap, nulls)


def _offsets_of(sizes: _Int64s, what: str) -> Slots:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] > 0x7FFFFFFF:
        raise FatalError(f"{what} of more than 2 GB in one micro-batch of one task; read fewer at a time")
    return offsets.astype(np.int32)


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns a read-only view: the kernels are compiled for read-only inputs only."""
    view = array.view()
    view.flags.writeable = False
    return view


def _power_above(number: int) -> int:
    return 1 << (number - 1).bit_length()


_EMPTY: _Bytes = read_only(np.empty(0, np.uint8))


def grown(array: npt.NDArray[Any], size: int, fill: int = 0) -> npt.NDArray[Any]:
    # Zeros take memory only where they are written.
    found = np.full(size, fill, array.dtype) if fill else np.zeros(size, array.dtype)
    found[: len(array)] = array
    return found
