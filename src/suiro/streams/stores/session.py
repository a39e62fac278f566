"""The session store: a row for each key and session, `key ‖ int64 end ‖ int64 start`, as in Kafka Streams' changelog.

A row is the serialised value; its timestamp is the session's end.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

from suiro.streams.records import LATEST_MS, Windowed
from suiro.streams.stores.decoded import Cells
from suiro.streams.stores.keyed import KeyedStore
from suiro.streams.stores.ordered import OrderedMap
from suiro.streams.stores.time_index import TimeIndex
from suiro.streams.topology.nodes import StoreSpec

_SESSION = struct.Struct(">qq")  # end, start


class SessionStore(KeyedStore):
    def __init__(self, spec: StoreSpec, rows: OrderedMap, *, keeps: bool = False) -> None:
        """`keeps`: see `decoded.Cells`."""
        super().__init__(spec, rows)
        self._cells = Cells(spec, rows, stamped=False, keeps=keeps)
        self.expires_before = 0
        """The end before which the store's operator needs no rows. Others may need them, see `operators.row_expiry`."""
        self._by_end = TimeIndex(rows.keys(), lambda row: _bounds(row)[0])
        # Ends and starts of each key, in order. Only operators need it, so it is made when they first do.
        self._of_key: dict[bytes, list[tuple[int, int]]] | None = None

    # For users

    def fetch(self, key: Any) -> Iterator[tuple[Windowed, Any]]:
        """Yields all sessions of a key, by end and then by start."""
        return self.find_sessions(key, 0, LATEST_MS)

    def find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed, Any]]:
        """Yields the key's sessions with end >= earliest_end and start <= latest_start, by end and then by start."""
        raw = self.key_of(key)
        length = len(raw) + _SESSION.size
        low = raw + _SESSION.pack(max(earliest_end, 0), 0)
        high = raw + _SESSION.pack(LATEST_MS, LATEST_MS) + b"\x00"
        for row in self._rows.keys(low, high):
            if len(row) != length:  # it is of a longer key, which begins with this one
                continue
            end, start = _bounds(row)
            if start <= latest_start and (found := self._cells.get(row)) is not None:
                yield Windowed(key, start, end), found[0]

    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        """Returns the value of exactly this session; None if there is none."""
        return self.value_at(self.key_of(key), start, end)

    def all(self) -> Iterator[tuple[Windowed, Any]]:
        """Yields all sessions in the order of the keys' bytes, then of ends and starts."""
        for row, data in self._rows.range():
            yield self._windowed(row), self._cells.decoded(data)[0]

    def approximate_num_entries(self) -> int:
        return len(self._rows)

    # For operators

    def put(self, key: Any, value: Any, start: int, end: int) -> None:
        """A value of None removes the session."""
        self.put_at(self.key_of(key), value, start, end)

    def remove(self, key: Any, start: int, end: int) -> None:
        self.put_at(self.key_of(key), None, start, end)

    def sessions_at(self, raw: bytes, earliest_end: int, latest_start: int) -> list[tuple[int, int, Any]]:
        """Returns start, end and value of the sessions that `find_sessions` yields."""
        places = self._places().get(raw)
        if places is None:
            return []
        found = []
        for end, start in places[bisect_left(places, (earliest_end,)) :] if places[0][0] < earliest_end else places:
            if start <= latest_start and (row := self._cells.get(raw + _SESSION.pack(end, start))) is not None:
                found.append((start, end, row[0]))
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
                self._by_end.remove(end, row)
                self._remove(row)
            return
        self._cells.put(row, value)
        if is_there:
            return
        self._by_end.add(end, row)
        if self._of_key is not None:
            insort(self._of_key.setdefault(raw, []), (end, start))

    def ending_between(self, first: int, last: int) -> Iterator[tuple[Windowed, Any]]:
        """Yields all keys' sessions with first <= end <= last, by end, then start, then key bytes."""
        for rows in self._by_end.between(first, last):
            for row in sorted(rows, key=lambda row: (_bounds(row)[1], row)):
                found = self._cells.get(row)
                if found is not None:
                    yield self._windowed(row), found[0]

    def remove_before(self, end: int) -> None:
        """Removes every session that ends earlier than this."""
        for row in self._by_end.take_before(end):
            self._remove(row)

    def _places(self) -> dict[bytes, list[tuple[int, int]]]:
        if self._of_key is None:
            self._of_key = {}
            for row in self._rows.keys():  # noqa: SIM118 - in their order, by end and then by start
                self._of_key.setdefault(row[: -_SESSION.size], []).append(_bounds(row))
        return self._of_key

    def _remove(self, row: bytes) -> None:
        """Removes a row that the time index no longer has."""
        self._rows.put(row, None)
        if self._of_key is None:
            return
        raw = row[: -_SESSION.size]
        places = self._of_key[raw]
        if len(places) == 1:
            del self._of_key[raw]
        else:
            del places[bisect_left(places, _bounds(row))]

    def _windowed(self, row: bytes) -> Windowed:
        end, start = _bounds(row)
        return Windowed(self.spec.key.deserialize(self._topic, row[: -_SESSION.size]), start, end)


def _bounds(row: bytes) -> tuple[int, int]:
    """Returns the end and the start of a row."""
    end, start = _SESSION.unpack_from(row, len(row) - _SESSION.size)
    return end, start
