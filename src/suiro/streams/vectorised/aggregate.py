"""Aggregates numbers by key, or by key and time window: first in the source task (`combine`, `combine_windows`), then
into the rows of a store (`NumberRows`).

A source task sends one row per key (and window) and chunk, in the order of the keys' last records. Doubles to be
summed, numbers whose sum may exceed 64 bits, and null numbers are not combined but travel one by one, because the order
of the records decides there. (A sum of longs that passes 64 bits and comes back within one chunk is an error for the
rules, but not here.) The rows of a store are arrays by slot; `load` and `take_changes` use the bytes of
`KeyValueStore`.

Of windows, a source task drops what is late by the records it has seen itself. The task, which knows the input
partition's time before, drops the windows that had closed by then. Both together drop what the rule drops, because a
window that takes a record at time T is one that neither time has closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suiro.errors import FatalError
from suiro.streams.errors import ProcessingError
from suiro.streams.expressions.on_arrow import evaluate
from suiro.streams.serdes import NotColumnarError
from suiro.streams.times import UNKNOWN
from suiro.streams.vectorised import kernels
from suiro.streams.vectorised.columns import Chunk
from suiro.streams.vectorised.key_index import BinaryView, KeyIndex, Slots, binary_array, grown, int64s, read_only
from suiro.streams.vectorised.numbers import Numbers
from suiro.streams.vectorised.stateless import columns_of
from suiro.streams.windows import TimeWindows

_Int64s = npt.NDArray[np.int64]
_SAFE = 1 << 62
_NOTHING: _Int64s = read_only(np.zeros(0, np.int64))
_PAIR = np.dtype([("slot", np.int32), ("start", np.int64)])
PIECES_MAX = 1 << 20
"""Records that are combined by window at a time; each counts once for each window that takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Records as they come into an aggregate. All have keys. `numbers` is None for a count; `valid` is None if no
    number is null."""

    keys: pa.Array
    timestamps: _Int64s
    numbers: npt.NDArray[Any] | None = None
    valid: npt.NDArray[np.uint8] | None = None
    headers: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.timestamps)


def inputs_of(
    chunk: Chunk, numbers: Numbers, key_serde: Any, topic: str, *, drops_null_values: bool
) -> tuple[Inputs, dict[str, int]]:
    """Returns the inputs, and how many records were dropped, by reason."""
    dropped: dict[str, int] = {}
    chunk = chunk.present("key", dropped)
    if drops_null_values:
        chunk = chunk.present("value", dropped)
    found: npt.NDArray[Any] | None = None
    valid = None
    if numbers.operand is not None:
        computed = evaluate(numbers.operand, columns_of(numbers.operand, chunk))
        found, valid = numbers_of(computed, numbers.is_double)
    keys = chunk.key.bytes_for(key_serde, topic)
    return Inputs(keys=keys, timestamps=chunk.timestamps, numbers=found, valid=valid, headers=chunk.headers), dropped


def numbers_of(column: pa.Array, is_double: bool) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8] | None]:
    """Returns a column as an array, and which of its numbers are not null (None: all)."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.float64 if is_double else np.int64), np.zeros(len(column), np.uint8)
    if not (pa.types.is_integer(kind) or (is_double and pa.types.is_floating(kind))):
        raise NotColumnarError("number", "", f"a column of {kind} stands where numbers should")
    valid = None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
        column = column.fill_null(0)
    # The cast refuses whole numbers that no double equals, as the serde does.
    return column.cast(pa.float64() if is_double else pa.int64()).to_numpy(zero_copy_only=False), valid


def combine(inputs: Inputs, numbers: Numbers) -> pa.RecordBatch:
    """Returns one row per key (key, number, timestamp, headers) in the order of the last records; or all records, if
    they may not be combined."""
    if not may_combine(inputs, numbers):
        return one_by_one(inputs)
    last, columns, _ = _combined(inputs.keys, inputs.timestamps, inputs.numbers, numbers.op)
    return _packed("combined", {"key": inputs.keys.take(last), **columns}, inputs.headers, last)


def combine_windows(inputs: Inputs, numbers: Numbers, windows: TimeWindows) -> tuple[pa.RecordBatch, int, int]:
    """Returns rows as `combine` does, of keys of the window store, with the count of their records; the latest
    timestamp (UNKNOWN if there are no records); and how many times a record was late for a window."""
    index = KeyIndex(min(len(inputs), 1 << 16))
    slots, is_combined = index.slots(inputs.keys), may_combine(inputs, numbers)
    width = -(-windows.size_ms // windows.advance_ms)
    step = max(1, PIECES_MAX // width)
    result = np.array([0, UNKNOWN, 0], np.int64)
    batches, late = [], 0
    for first in range(0, max(len(slots), 1), step):
        part = read_only(slots[first : first + step])
        rows, starts = (np.empty(width * len(part), np.int64) for _ in range(2))
        of = np.empty(len(rows), np.int32)
        times = read_only(inputs.timestamps[first : first + step])
        bounds = (windows.size_ms, windows.advance_ms, windows.grace_ms)
        kernels.spread_windows(part, times, *bounds, rows, of, starts, result)
        count, late = int(result[0]), late + int(result[2])
        rows, starts, of = rows[:count] + first, starts[:count], of[:count]
        timestamps = inputs.timestamps[rows]
        values = None if inputs.numbers is None else inputs.numbers[rows]
        if is_combined:
            pairs = np.empty(count, _PAIR)
            pairs["slot"], pairs["start"] = of, starts
            keys = binary_array(np.arange(count + 1, dtype=np.int32) * _PAIR.itemsize, pairs.view(np.uint8))
            last, columns, slots_of = _combined(keys, timestamps, values, numbers.op)
            at = last.to_numpy()
            counts = pa.array(np.bincount(slots_of)[slots_of[at]])
            columns = {"key": index.window_keys(of[at], starts[at]), **columns, "count": counts}
            batches.append(_packed("combined", columns, inputs.headers, pa.array(rows[at])))
        else:
            valid = None if inputs.valid is None else inputs.valid[rows]
            headers = None if inputs.headers is None else inputs.headers.take(pa.array(rows))
            keys = index.window_keys(of, starts)
            pieces = Inputs(keys=keys, timestamps=timestamps, numbers=values, valid=valid, headers=headers)
            batches.append(one_by_one(pieces))
    return pa.concat_batches(batches), int(result[1]), late


def _combined(
    keys: pa.Array, timestamps: _Int64s, values: _Int64s | None, op: int
) -> tuple[pa.Array, dict[str, pa.Array], Slots]:
    """Returns the last row of each key, in their order; what the key's rows are together; and the slot of each row."""
    index = KeyIndex(min(len(keys), 1 << 16))
    slots = index.slots(keys)
    count = len(index)
    partial = np.zeros(count, np.int64)
    latest = np.zeros(count, np.int64)
    last = np.full(count, -1, np.int64)
    numbers = _NOTHING if values is None else read_only(values)
    kernels.combine(read_only(slots), read_only(timestamps), numbers, op, partial, latest, last)
    order = last_first(last, len(keys))
    columns = {"number": pa.array(partial[order]), "timestamp": pa.array(latest[order])}
    return pa.array(last[order]), columns, slots


def one_by_one(inputs: Inputs) -> pa.RecordBatch:
    mask = None if inputs.valid is None else inputs.valid == 0
    numbers, timestamps = pa.array(inputs.numbers, mask=mask), pa.array(inputs.timestamps)
    return _packed("records", {"key": inputs.keys, "number": numbers, "timestamp": timestamps}, inputs.headers)


def _packed(
    kind: str, columns: dict[str, pa.Array], headers: pa.Array | None, rows: pa.Array | None = None
) -> pa.RecordBatch:
    """`rows`: the rows that the headers are taken of; None: all."""
    if headers is not None:
        columns["headers"] = headers if rows is None else headers.take(rows)
    return pa.RecordBatch.from_pydict(columns).replace_schema_metadata({"kind": kind})


def may_combine(inputs: Inputs, numbers: Numbers) -> bool:
    if numbers.op == kernels.COUNT:
        return True
    if not numbers.combines or inputs.valid is not None or inputs.numbers is None:
        return False
    if numbers.op != kernels.SUM or len(inputs) == 0:
        return True
    largest = max(abs(int(inputs.numbers.min())), abs(int(inputs.numbers.max())))
    return largest * len(inputs) < _SAFE


def last_first(last: _Int64s, domain: int) -> _Int64s:
    """Returns the indices of `last` in the order of its values, which are all different and below `domain`."""
    if domain > 8 * len(last) + 1024:
        return np.argsort(last)
    marks = np.full(domain, -1, np.int64)
    marks[last] = np.arange(len(last))
    return marks[marks >= 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """The changes of a batch, in the order of the keys' last updates; a null number is a deletion."""

    keys: pa.Array
    numbers: pa.Array
    timestamps: _Int64s
    headers: pa.Array | None


class NumberRows:
    """A store of numbers: a key-value store's rows, or a window store's (`starts` knows their windows then)."""

    def __init__(self, numbers: Numbers, *, is_windowed: bool = False, operator: str = "") -> None:
        self._numbers = numbers
        self._operator = operator
        self._is_windowed = is_windowed
        self._clear()

    def _clear(self, expected: int = 512) -> None:
        self._index = KeyIndex(expected)
        self._present = np.zeros(expected, np.uint8)
        self._times = np.zeros(expected, np.int64)
        self._rows = np.zeros(expected, np.int64)  # a double's bits where numbers are doubles
        self._forwarded = np.zeros(expected, np.int64)
        self._changed = np.full(expected, -1, np.int64)
        self._dirty = np.zeros(expected, np.uint8)
        self._starts = np.zeros(expected if self._is_windowed else 0, np.int64)
        self._known_starts = 0
        self._turns = 0
        self._headers: list[tuple[int, pa.Array]] = []

    def __len__(self) -> int:
        return int(np.count_nonzero(self._present[: len(self._index)]))

    @property
    def nbytes(self) -> int:
        return self._index.nbytes + sum(
            array.nbytes for array in (self._times, self._rows, self._forwarded, self._changed)
        )

    def load(self, keys: pa.Array, values: pa.Array) -> None:
        """Loads rows as a store holds them. A later row of a key replaces an earlier one; null deletes it."""
        slots, valid = self._slots(keys), values.is_valid().to_numpy(zero_copy_only=False)
        view = BinaryView.of(values.drop_null())
        bad = np.flatnonzero(np.diff(view.offsets) != 16)
        if len(bad):
            key = keys.filter(values.is_valid())[int(bad[0])].as_py()
            raise FatalError(f"row {key!r} of the state of {self._operator} is no number")
        pairs = view.data[view.offsets[0] : view.offsets[-1]].view(">i8").reshape(-1, 2)
        # Of equal slots, the last one stays.
        self._present[slots] = valid
        self._times[slots[valid]], self._rows[slots[valid]] = pairs[:, 0], pairs[:, 1]

    def take_changes(self) -> tuple[pa.Array, pa.Array] | None:
        """Returns keys and rows that changed since the last call, null for deleted rows; None if nothing changed."""
        slots = np.flatnonzero(self._dirty[: len(self._index)]).astype(np.int32)
        if len(slots) == 0:
            return None
        self._dirty[slots] = 0
        found = self._index.keys(slots), self._saved(slots)
        self._compact()
        return found

    def rows(self) -> tuple[pa.Array, pa.Array]:
        slots = np.flatnonzero(self._present[: len(self._index)]).astype(np.int32)
        return self._index.keys(slots), self._saved(slots)

    def apply(self, payload: pa.RecordBatch, closed: int | None = None, length: int = 0) -> int:
        """Applies the payload of a source task. Windows whose start is at most `closed - length` take nothing. Returns
        how many records were too late for them."""
        slots = self._slots(payload.column("key"))
        late = 0
        if closed is not None:
            starts = self._starts[slots]
            is_late = starts <= closed - length
            if is_late.any():
                counts = np.ones(len(slots), np.int64)
                if "count" in payload.schema.names:
                    counts = payload.column("count").to_numpy()
                late = int(counts[is_late].sum())
                slots = np.where(is_late, np.int32(-1), slots).astype(np.int32)
        rows = payload.num_rows
        order = np.arange(self._turns, self._turns + rows)
        if "headers" in payload.schema.names:
            self._headers.append((self._turns, payload.column("headers")))
        self._turns += rows
        timestamps = payload.column("timestamp").to_numpy()
        bad = self._apply(slots, payload.column("number"), timestamps, order)
        if bad >= 0:
            raise ProcessingError(
                f"operator {self._operator} failed on key bytes {payload.column('key')[bad].as_py()!r}, timestamp "
                f"{int(timestamps[bad])}: the {self._numbers.name} does not fit into 64 bits"
            )
        self._dirty[slots[slots >= 0]] = 1
        return late

    def updates(self) -> Updates:
        """Ends the batch and returns its changes."""
        changed = self._changed[: len(self._index)]
        touched = np.flatnonzero(changed >= 0)
        touched = touched[last_first(changed[touched], self._turns)] if len(touched) else touched
        slots = touched.astype(np.int32)
        present = self._present[slots] != 0
        order = changed[touched]
        found = Updates(
            keys=self._index.keys(slots),
            numbers=self._as_numbers(slots, present),
            timestamps=np.where(present, self._times[slots], self._forwarded[slots]),
            headers=self._headers_of(order),
        )
        self._changed[slots] = -1
        self._turns = 0
        self._headers = []
        return found

    def remove_before(self, start: int) -> None:
        """Removes every window that starts earlier than this."""
        count = len(self._index)
        old = (self._present[:count] != 0) & (self._starts[:count] < start)
        if old.any():
            self._present[:count][old] = 0
            self._dirty[:count][old] = 1

    def _slots(self, keys: pa.Array) -> Slots:
        slots = self._index.slots(keys)
        count = len(self._index)
        if count > len(self._present):
            size = max(count, 2 * len(self._present))
            for name in ("_present", "_times", "_rows", "_forwarded", "_dirty"):
                setattr(self, name, grown(getattr(self, name), size, 0))
            self._changed = grown(self._changed, size, -1)
            if self._is_windowed:
                self._starts = grown(self._starts, size, 0)
        if self._is_windowed and count > self._known_starts:
            new = np.arange(self._known_starts, count, dtype=np.int32)
            self._starts[self._known_starts : count] = int64s(self._index.keys(new), -12, -4)
            self._known_starts = count
        return slots

    def _apply(self, slots: Slots, column: pa.Array, timestamps: _Int64s, order: _Int64s) -> int:
        numbers = self._numbers
        values, valid = numbers_of(column, numbers.is_double)
        if valid is None:
            valid = np.ones(len(values), np.uint8)
        kernel: Any = kernels.apply_doubles if numbers.is_double else kernels.apply_longs
        given = 0 if numbers.initial is None else numbers.initial
        return int(
            kernel(
                read_only(slots),
                read_only(values),
                read_only(valid),
                read_only(timestamps),
                read_only(order),
                kernels.SUM if numbers.op == kernels.COUNT else numbers.op,
                float(given) if numbers.is_double else int(given),
                numbers.initial is not None,
                numbers.reduces,
                not numbers.is_double,
                self._present,
                self._times,
                self._rows.view(np.float64) if numbers.is_double else self._rows,
                self._changed,
                self._forwarded,
            )
        )

    def _as_numbers(self, slots: Slots, present: npt.NDArray[np.bool_]) -> pa.Array:
        rows = self._rows.view(np.float64) if self._numbers.is_double else self._rows
        return pa.array(rows[slots], mask=None if present.all() else ~present)

    def _saved(self, slots: Slots) -> pa.Array:
        present = self._present[slots] != 0
        pairs = np.stack([self._times[slots], self._rows[slots]], axis=1)[present].astype(">i8")
        offsets = np.zeros(len(slots) + 1, np.int32)
        np.cumsum(16 * present, out=offsets[1:])
        bitmap = np.packbits(present, bitorder="little")
        return binary_array(offsets, pairs.reshape(-1), bitmap, len(slots) - int(present.sum()))

    def _headers_of(self, order: _Int64s) -> pa.Array | None:
        if not self._headers:
            return None
        kind = self._headers[0][1].type
        parts, end = [], 0
        for start, column in self._headers:
            if start > end:
                parts.append(pa.nulls(start - end, kind))
            parts.append(column)
            end = start + len(column)
        if self._turns > end:
            parts.append(pa.nulls(self._turns - end, kind))
        return pa.concat_arrays(parts).take(pa.array(order))

    def _compact(self) -> None:
        """Forgets the keys of deleted rows when they are the larger part."""
        count = len(self._index)
        if count < 4096 or 2 * len(self) > count:
            return
        keys, values = self.rows()
        self._clear(max(512, len(keys)))
        self.load(keys, values)
