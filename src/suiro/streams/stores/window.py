"""The window store: a row for each key and window start, `key ‖ int64 start ‖ int32 0`, as in Kafka Streams' changelog.

A row is its timestamp (int64) and the serialised value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, overload

from suiro.streams.records import LATEST_MS, Windowed
from suiro.streams.stores.decoded import Cells
from suiro.streams.stores.keyed import KeyedStore
from suiro.streams.stores.ordered import OrderedMap
from suiro.streams.stores.time_index import TimeIndex
from suiro.streams.topology.nodes import StoreSpec

_WINDOW = struct.Struct(">qi")  # start, sequence
_UNKNOWN_TIMESTAMP = -1


class WindowStore(KeyedStore):
    """`fetch_all` and `all` compute the ends of windows from `spec.window_size_ms`. `keeps`: see `decoded`."""

    def __init__(self, spec: StoreSpec, rows: OrderedMap, *, keeps: bool = False) -> None:
        super().__init__(spec, rows)
        self._cells = Cells(spec, rows, stamped=True, keeps=keeps)
        self.expires_before = 0
        """The start before which the store's operator needs no rows. Others may need them, see
        `operators.row_expiry`."""
        self._size = spec.window_size_ms or 0
        self._by_start = TimeIndex(rows.keys(), _start)

    # For users

    @overload
    def fetch(self, key: Any, time: int) -> Any: ...
    @overload
    def fetch(self, key: Any, time: int, time_to: int) -> Iterator[tuple[int, Any]]: ...
    def fetch(self, key: Any, time: int, time_to: int | None = None) -> Any:
        """Returns the value of the key's window that starts at `time`, None if there is none. With two times, yields
        (start, value) of the windows that start between them, both included, oldest first."""
        if time_to is not None:
            return ((start, value) for start, value, _ in self.fetch_rows(key, time, time_to))
        found = self.get_with_timestamp(key, time)
        return None if found is None else found[0]

    def fetch_all(self, time_from: int, time_to: int) -> Iterator[tuple[Windowed, Any]]:
        """Yields all keys' windows that start between the times, both included; oldest first, then in the order of
        keys."""
        for key, start, value, _ in self.rows_between(time_from, time_to):
            yield Windowed(key, start, start + self._size), value

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        """Yields all windows in the order of the keys' bytes, then of starts."""
        for row, data in self._rows.range():
            start = _start(row)
            yield Windowed(self._key(row), start, start + self._size), self._cells.decoded(data)[0]

    def approximate_num_entries(self) -> int:
        return len(self._rows)

    # For operators

    def get_with_timestamp(self, key: Any, start: int) -> tuple[Any, int] | None:
        return self.row_at(self.key_of(key), start)

    def row_at(self, raw: bytes, start: int) -> tuple[Any, int] | None:
        return self._cells.get(raw + _WINDOW.pack(start, 0))

    def fetch_rows(self, key: Any, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, Any, int]]:
        """Yields (start, value, timestamp) of the key's windows with first <= start <= last."""
        first, last = max(first, 0), min(last, LATEST_MS)
        # The bytes of a negative time come behind all others.
        if last < first:
            return
        raw = self.key_of(key)
        length = len(raw) + _WINDOW.size
        low = raw + _WINDOW.pack(first, 0)
        high = raw + _WINDOW.pack(last, 1)
        for row in self._rows.keys(low, high, reverse=reverse):
            # A row of another length is of a longer key, which begins with this one.
            if len(row) == length and (found := self._cells.get(row)) is not None:
                yield _start(row), *found

    def put(self, key: Any, value: Any, start: int, timestamp: int = _UNKNOWN_TIMESTAMP) -> None:
        """A value of None deletes the row."""
        self.put_at(self.key_of(key), value, start, timestamp)

    def put_at(self, raw: bytes, value: Any, start: int, timestamp: int) -> None:
        row = raw + _WINDOW.pack(start, 0)
        is_there = row in self._rows
        if value is not None:
            self._cells.put(row, value, timestamp)
            if not is_there:
                self._by_start.add(start, row)
        elif is_there:
            self._rows.put(row, None)
            self._by_start.remove(start, row)

    def rows_between(self, first: int, last: int) -> Iterator[tuple[Any, int, Any, int]]:
        """Yields (key, start, value, timestamp) of all windows with first <= start <= last, by start, then by key
        bytes."""
        for rows in self._by_start.between(first, last):
            for row in sorted(rows):
                found = self._cells.get(row)
                if found is not None:
                    yield self._key(row), _start(row), *found

    def remove_before(self, start: int) -> None:
        """Removes every window that starts earlier than this."""
        for row in self._by_start.take_before(start):
            self._rows.put(row, None)

    def _key(self, row: bytes) -> Any:
        return self.spec.key.deserialize(self._topic, row[: -_WINDOW.size])


def _start(row: bytes) -> int:
    return int(_WINDOW.unpack_from(row, len(row) - _WINDOW.size)[0])
