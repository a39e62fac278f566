"""The stores of windows and of sessions: a row for each key and window, laid out as in Kafka Streams' changelog.

A row of the window store is `key ‖ int64 start ‖ int32 0` -> its timestamp (int64) and the serialised value. One of the
session store is `key ‖ int64 end ‖ int64 start` -> the serialised value; its timestamp is the session's end.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any, overload

from sortedcontainers import SortedDict

from suiro.streams.records import LATEST_MS, Windowed
from suiro.streams.stores.decoded import Cells
from suiro.streams.stores.ordered import KeyedStore, OrderedMap
from suiro.streams.topology.nodes import StoreSpec

_WINDOW = struct.Struct(">qi")  # start, sequence
_SESSION = struct.Struct(">qq")  # end, start
_UNKNOWN_TIMESTAMP = -1


class _WindowedStore(KeyedStore):
    """`keeps`: see `decoded.Cells`. The time of a row is the first number behind its key."""

    _layout: struct.Struct

    def __init__(self, spec: StoreSpec, rows: OrderedMap, *, stamped: bool, keeps: bool) -> None:
        super().__init__(spec, rows)
        self._cells = Cells(spec, rows, stamped=stamped, keeps=keeps)
        self.expires_before = 0
        """The time before which the store's operator needs no rows. Others may need them, see
        `operators.windowing`."""
        self._by_time = _TimeIndex()
        unpack, size = self._layout.unpack_from, self._layout.size
        for row in rows.keys():  # noqa: SIM118 - in their order
            self._by_time.add(unpack(row, len(row) - size)[0], row)

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        """Yields all windows in the order of the keys' bytes, then of the numbers behind them."""
        for row, data in self._rows.range():
            yield self._windowed(row), self._cells.decoded(data)[0]

    def approximate_num_entries(self) -> int:
        return len(self._rows)

    def remove_before(self, time: int) -> None:
        """Removes every row of an earlier time."""
        for row in self._by_time.take_before(time):
            self._remove(row)

    def _remove(self, row: bytes) -> None:
        """Removes a row that the time index no longer has."""
        self._rows.put(row, None)

    def _numbers(self, row: bytes) -> tuple[int, ...]:
        return self._layout.unpack(row[-self._layout.size :])

    def _key(self, row: bytes) -> Any:
        return self.spec.key.deserialize(self._topic, row[: -self._layout.size])

    def _windowed(self, row: bytes) -> Windowed:
        raise NotImplementedError


class WindowStore(_WindowedStore):
    """`fetch_all` and `all` compute the ends of windows from `spec.window_size_ms`."""

    _layout = _WINDOW

    def __init__(self, spec: StoreSpec, rows: OrderedMap, *, keeps: bool = False) -> None:
        super().__init__(spec, rows, stamped=True, keeps=keeps)
        self._size = spec.window_size_ms or 0

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

    # For operators

    def get_with_timestamp(self, key: Any, start: int) -> tuple[Any, int] | None:
        return self.row_at(self.key_of(key), start)

    def table_row(self, key: Windowed) -> tuple[Any, int] | None:
        """Returns value and timestamp of a table's row."""
        return self.get_with_timestamp(key.key, key.start)

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
        for row in self._rows.keys(raw + _WINDOW.pack(first, 0), raw + _WINDOW.pack(last, 1), reverse=reverse):
            # A row of another length is of a longer key, which begins with this one.
            if len(row) == length and (found := self._cells.get(row)) is not None:
                yield self._numbers(row)[0], *found

    def put(self, key: Any, value: Any, start: int, timestamp: int = _UNKNOWN_TIMESTAMP) -> None:
        """A value of None deletes the row."""
        self.put_at(self.key_of(key), value, start, timestamp)

    def put_at(self, raw: bytes, value: Any, start: int, timestamp: int) -> None:
        row = raw + _WINDOW.pack(start, 0)
        is_there = row in self._rows
        if value is not None:
            self._cells.put(row, value, timestamp)
            if not is_there:
                self._by_time.add(start, row)
        elif is_there:
            self._by_time.remove(start, row)
            self._remove(row)

    def rows_between(self, first: int, last: int) -> Iterator[tuple[Any, int, Any, int]]:
        """Yields (key, start, value, timestamp) of all windows with first <= start <= last, by start, then by key
        bytes."""
        for start, rows in self._by_time.between(first, last):
            for row in sorted(rows):
                if (found := self._cells.get(row)) is not None:
                    yield self._key(row), start, *found

    def _windowed(self, row: bytes) -> Windowed:
        start = self._numbers(row)[0]
        return Windowed(self._key(row), start, start + self._size)


class SessionStore(_WindowedStore):
    _layout = _SESSION

    def __init__(self, spec: StoreSpec, rows: OrderedMap, *, keeps: bool = False) -> None:
        super().__init__(spec, rows, stamped=False, keeps=keeps)
        # Ends and starts of each key, in order; made when a key is first asked for.
        self._of_key: dict[bytes, list[tuple[int, ...]]] | None = None

    # For users

    def fetch(self, key: Any) -> Iterator[tuple[Windowed, Any]]:
        """Yields all sessions of a key, by end and then by start."""
        return self.find_sessions(key, 0, LATEST_MS)

    def find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed, Any]]:
        """Yields the key's sessions with end >= earliest_end and start <= latest_start, by end and then by start."""
        for start, end, value in self.sessions_at(self.key_of(key), earliest_end, latest_start):
            yield Windowed(key, start, end), value

    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        """Returns the value of exactly this session; None if there is none."""
        return self.value_at(self.key_of(key), start, end)

    # For operators

    def table_row(self, key: Windowed) -> tuple[Any, int] | None:
        """Returns value and timestamp of a table's row."""
        value = self.fetch_session(key.key, key.start, key.end)
        return None if value is None else (value, key.end)

    def put(self, key: Any, value: Any, start: int, end: int) -> None:
        """A value of None removes the session."""
        self.put_at(self.key_of(key), value, start, end)

    def remove(self, key: Any, start: int, end: int) -> None:
        self.put_at(self.key_of(key), None, start, end)

    def sessions_at(self, raw: bytes, earliest_end: int, latest_start: int) -> list[tuple[int, int, Any]]:
        """Returns start, end and value of the sessions that `find_sessions` yields."""
        if self._of_key is None:
            self._of_key = {}
            for row in self._rows.keys():  # noqa: SIM118 - in their order, by end and then by start
                self._of_key.setdefault(row[: -_SESSION.size], []).append(self._numbers(row))
        places = self._of_key.get(raw)
        if places is None:
            return []
        found = []
        for end, start in places[bisect_left(places, (earliest_end,)) :] if places[0][0] < earliest_end else places:
            if start <= latest_start and (there := self._cells.get(raw + _SESSION.pack(end, start))) is not None:
                found.append((start, end, there[0]))
        return found

    def value_at(self, raw: bytes, start: int, end: int) -> Any:
        found = self._cells.get(raw + _SESSION.pack(end, start))
        return None if found is None else found[0]

    def put_at(self, raw: bytes, value: Any, start: int, end: int) -> None:
        """A value of None removes the session."""
        row = raw + _SESSION.pack(end, start)
        is_there = row in self._rows
        if value is None:
            if is_there:
                self._by_time.remove(end, row)
                self._remove(row)
            return
        self._cells.put(row, value)
        if is_there:
            return
        self._by_time.add(end, row)
        if self._of_key is not None:
            insort(self._of_key.setdefault(raw, []), (end, start))

    def ending_between(self, first: int, last: int) -> Iterator[tuple[Windowed, Any]]:
        """Yields all keys' sessions with first <= end <= last, by end, then start, then key bytes."""
        for _, rows in self._by_time.between(first, last):
            for row in sorted(rows, key=lambda row: (self._numbers(row)[1], row)):
                if (found := self._cells.get(row)) is not None:
                    yield self._windowed(row), found[0]

    def _remove(self, row: bytes) -> None:
        self._rows.put(row, None)
        if self._of_key is None:
            return
        raw = row[: -_SESSION.size]
        places = self._of_key[raw]
        if len(places) == 1:
            del self._of_key[raw]
        else:
            del places[bisect_left(places, self._numbers(row))]

    def _windowed(self, row: bytes) -> Windowed:
        end, start = self._numbers(row)
        return Windowed(self._key(row), start, end)


class _TimeIndex:
    """The rows of a store by their time, so that old ones are found without a look at the others. It is kept in memory,
    and built when the store is opened."""

    def __init__(self) -> None:
        # The dict is a set that keeps its order: two runs of the same records do the same.
        self._rows: SortedDict[int, dict[bytes, None]] = SortedDict()
        self._oldest = LATEST_MS

    def add(self, time: int, row: bytes) -> None:
        peers = self._rows.get(time)
        if peers is None:
            peers = self._rows[time] = {}
            if time < self._oldest:
                self._oldest = time
        peers[row] = None

    def remove(self, time: int, row: bytes) -> None:
        peers = self._rows[time]
        del peers[row]
        if not peers:
            del self._rows[time]
            self._oldest = self._first()

    def between(self, first: int, last: int) -> Iterator[tuple[int, Iterable[bytes]]]:
        """Yields each time with first <= time <= last, and its rows. They may come and go while this is consumed."""
        for time in list(self._rows.irange(first, last)):
            yield time, self._rows.get(time, ())

    def take_before(self, time: int) -> list[bytes]:
        """Removes the rows of all earlier times and returns them, oldest first."""
        found: list[bytes] = []
        if time > self._oldest:
            while self._rows and (oldest := self._rows.peekitem(0)[0]) < time:
                found.extend(self._rows.pop(oldest))
            self._oldest = self._first()
        return found

    def _first(self) -> int:
        return self._rows.peekitem(0)[0] if self._rows else LATEST_MS
