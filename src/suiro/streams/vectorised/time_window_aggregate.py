"""Aggregates numbers by key and time window: finds the windows of each record, then works as `aggregate`.

A source task drops what is late by the records it has seen itself and puts the rest together per key and window; the
task, which knows the input partition's time before, drops the windows that had closed by then. Both together drop what
the rule drops, because a window that takes a record at time T is one that neither time has closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suiro.streams.times import UNKNOWN
from suiro.streams.vectorised import kernels
from suiro.streams.vectorised.aggregate import Inputs, last_first, may_combine, one_by_one
from suiro.streams.vectorised.key_index import KeyIndex, read_only
from suiro.streams.vectorised.numbers import Numbers
from suiro.streams.windows import TimeWindows

_NOTHING: npt.NDArray[np.int64] = read_only(np.zeros(0, np.int64))
_PAIRS = 4096


@dataclass(frozen=True, slots=True)
class WindowPayload:
    """`time`: the latest timestamp of the records; UNKNOWN if there are none."""

    columns: pa.RecordBatch
    time: int
    late: int


def combine_windows(inputs: Inputs, numbers: Numbers, windows: TimeWindows) -> WindowPayload:
    """Returns rows of (key of the window store, number, timestamp, count, headers), as `aggregate.combine` does."""
    index = KeyIndex(min(len(inputs), 1 << 16))
    slots = index.slots(inputs.keys)
    if not may_combine(inputs, numbers):
        return _spread(inputs, windows, index, slots)
    values = _NOTHING if inputs.numbers is None else read_only(inputs.numbers)
    width = -(-windows.size_ms // windows.advance_ms)
    room = max(_PAIRS, 2 * len(index), 2 * width)
    pairs = _Pairs(room)
    result = np.array([0, 0, UNKNOWN, 0], np.int64)
    while True:
        kernels.combine_windows(
            read_only(slots),
            read_only(inputs.timestamps),
            values,
            numbers.op,
            windows.size_ms,
            windows.advance_ms,
            windows.grace_ms,
            *pairs.arrays,
            result,
        )
        if result[0] == len(slots):
            break
        pairs.grow(int(result[1]))
    count = int(result[1])
    last = pairs.last[:count]
    order = last_first(last, len(slots) * width)
    columns = {
        "key": index.window_keys(pairs.slots[:count][order], pairs.starts[:count][order]),
        "number": pa.array(pairs.partial[:count][order]),
        "timestamp": pa.array(pairs.latest[:count][order]),
        "count": pa.array(pairs.counts[:count][order]),
    }
    if inputs.headers is not None:
        columns["headers"] = inputs.headers.take(pa.array(last[order] // width))
    batch = pa.RecordBatch.from_pydict(columns).replace_schema_metadata({"kind": "combined"})
    return WindowPayload(batch, int(result[2]), int(result[3]))


def _spread(inputs: Inputs, windows: TimeWindows, index: KeyIndex, slots: Any) -> WindowPayload:
    width = -(-windows.size_ms // windows.advance_ms)
    room = width * len(slots)
    rows, starts, order = (np.empty(room, np.int64) for _ in range(3))
    out_slots = np.empty(room, np.int32)
    result = np.array([0, UNKNOWN, 0], np.int64)
    kernels.spread_windows(
        read_only(slots),
        read_only(inputs.timestamps),
        windows.size_ms,
        windows.advance_ms,
        windows.grace_ms,
        rows,
        out_slots,
        starts,
        order,
        result,
    )
    count = int(result[0])
    rows = rows[:count]
    assert inputs.numbers is not None
    pieces = Inputs(
        keys=index.window_keys(out_slots[:count], starts[:count]),
        timestamps=inputs.timestamps[rows],
        numbers=inputs.numbers[rows],
        valid=None if inputs.valid is None else inputs.valid[rows],
        headers=None if inputs.headers is None else inputs.headers.take(pa.array(rows)),
    )
    return WindowPayload(one_by_one(pieces), int(result[1]), int(result[2]))


class _Pairs:
    """Pairs of a key and a window, with the results of each."""

    def __init__(self, room: int) -> None:
        self.table = np.zeros(1 << (2 * room - 1).bit_length(), np.int32)
        self.slots = np.empty(room, np.int32)
        self.starts = np.empty(room, np.int64)
        self.partial = np.empty(room, np.int64)
        self.latest = np.empty(room, np.int64)
        self.last = np.empty(room, np.int64)
        self.counts = np.empty(room, np.int64)

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return self.table, self.slots, self.starts, self.partial, self.latest, self.last, self.counts

    def grow(self, count: int) -> None:
        room = 2 * len(self.slots)
        bigger = _Pairs(room)
        for old, new in zip(self.arrays[1:], bigger.arrays[1:], strict=True):
            new[:count] = old[:count]
        kernels.rehash_pairs(bigger.table, bigger.slots, bigger.starts, count)
        for name in ("table", "slots", "starts", "partial", "latest", "last", "counts"):
            setattr(self, name, getattr(bigger, name))
