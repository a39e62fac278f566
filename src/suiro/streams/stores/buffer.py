"""The buffer of records that wait for stream time to advance: entries of bytes, ordered by (time, key bytes).

For `suppress`, for stream records that wait for late rows of a table, and for unmatched records of outer joins. Every
entry is a row of the ordered map, `time ‖ key ‖ sequence`; what is derived from the rows is built when it is opened.
`put` holds at most one entry for a key, `add` holds any number; a buffer is used in one of these ways.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from suiro.streams.records import Headers
from suiro.streams.stores.ordered import OrderedMap
from suiro.streams.topology.nodes import StoreSpec

Entry = tuple[int, bytes, bytes]
"""Time, key, payload."""

# Times are moved up by half their range, so that the bytes of negative ones come first too.
_MIDDLE = 1 << 63
_TIME = struct.Struct(">Q")
_SEQUENCE = struct.Struct(">I")
_COUNT = struct.Struct(">H")
_LENGTH = struct.Struct(">i")
_NULL = -1


class TimeOrderedBuffer:
    def __init__(self, spec: StoreSpec, rows: OrderedMap) -> None:
        self.spec = spec
        self._rows = rows
        # Rows that were removed stay in the heap until they come up; no row is ever missing there.
        self._heap = [row for row, _ in rows.range()]
        heapify(self._heap)
        self._size = sum(len(row) + len(payload) for row, payload in rows.range())
        self._time_of: dict[bytes, int] | None = None  # filled by the first use that needs it

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def size_in_bytes(self) -> int:
        """The bytes of all keys and payloads."""
        return self._size

    @property
    def min_time(self) -> int | None:
        """The time of the entry that leaves first; None if there is none."""
        row = self._first()
        return None if row is None else _time(row)

    # One entry for a key

    def put(self, time: int, key: bytes, payload: bytes) -> None:
        """Replaces the key's entry, which keeps its time, or makes one with this time."""
        times = self._times()
        self._write(_row(times.setdefault(key, time), key, 0), payload)

    def get(self, key: bytes) -> bytes | None:
        time = self._times().get(key)
        return None if time is None else self._rows.get(_row(time, key, 0))

    def delete(self, key: bytes) -> None:
        """Removes the key's entry, if there is one."""
        time = self._times().get(key)
        if time is not None:
            self._erase(_row(time, key, 0))

    # Several entries for a key

    def add(self, time: int, key: bytes, payload: bytes) -> None:
        """Adds an entry. Entries of the same time and key leave in the order they were added."""
        self._write(_row(time, key, self._next_sequence(time, key)), payload)

    def remove(self, time: int, key: bytes) -> list[Entry]:
        """Removes and returns all entries of this time and key."""
        if self._rows.get(_row(time, key, 0)) is None:  # the first one leaves first
            return []
        found = list(self._entries_at(time, key))
        for row, _ in found:
            self._erase(row)
        return [(time, key, payload) for _, payload in found]

    def move(self, by: int) -> None:
        """Moves the times of all entries later by this."""
        if by:
            entries = list(self.entries())
            for time, key, _ in entries:
                self.remove(time, key)
            for time, key, payload in entries:
                self.add(time + by, key, payload)

    def entries(self) -> Iterator[Entry]:
        """Yields all entries in the order in which they leave."""
        for row, payload in self._rows.range():
            yield _time(row), row[8:-4], payload

    def evict_while(self, condition: Callable[[], bool]) -> Iterator[Entry]:
        """Removes and yields the first entry, as long as there is one and the condition holds."""
        while (row := self._first()) is not None and condition():
            payload = self._rows.get(row)
            assert payload is not None  # `_first` gives rows that are there
            self._erase(row)
            yield _time(row), row[8:-4], payload

    def evict_before(self, time: int) -> Iterator[Entry]:
        """Removes and yields every entry whose time is less than this."""
        return self.evict_while(lambda: _time(self._heap[0]) < time)

    def _first(self) -> bytes | None:
        heap = self._heap
        while heap and self._rows.get(heap[0]) is None:
            heappop(heap)
        return heap[0] if heap else None

    def _write(self, row: bytes, payload: bytes) -> None:
        replaced = self._rows.get(row)
        if replaced is None:
            heappush(self._heap, row)
            self._size += len(row) + len(payload)
        else:
            self._size += len(payload) - len(replaced)
        self._rows.put(row, payload)

    def _erase(self, row: bytes) -> None:
        payload = self._rows.get(row)
        assert payload is not None
        self._size -= len(row) + len(payload)
        self._rows.put(row, None)
        if self._time_of is not None:
            self._time_of.pop(row[8:-4], None)
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._rows):
            self._heap = sorted(row for row, _ in self._rows.range())

    def _times(self) -> dict[bytes, int]:
        if self._time_of is None:
            self._time_of = {row[8:-4]: _time(row) for row, _ in self._rows.range()}
        return self._time_of

    def _entries_at(self, time: int, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        prefix = _row(time, key, 0)[:-4]
        # Rows of longer keys that begin with this one lie in between.
        found = self._rows.range(prefix, prefix + b"\xff" * 4)
        return (entry for entry in found if len(entry[0]) == len(prefix) + 4)

    def _next_sequence(self, time: int, key: bytes) -> int:
        if self._rows.get(_row(time, key, 0)) is None:
            return 0
        last = max((row for row, _ in self._entries_at(time, key)), default=b"")
        return int(_SEQUENCE.unpack(last[-4:])[0]) + 1


def _row(time: int, key: bytes, sequence: int) -> bytes:
    return _TIME.pack(time + _MIDDLE) + key + _SEQUENCE.pack(sequence)


def _time(row: bytes) -> int:
    return int(_TIME.unpack_from(row)[0]) - _MIDDLE


# Records as payloads: value and headers


def pack(value: bytes, headers: Headers) -> bytes:
    parts = [_COUNT.pack(len(headers))]
    for name, content in headers:
        parts += framed(name.encode()), framed(content)
    return b"".join((*parts, value))


def unpack(payload: bytes) -> tuple[bytes, Headers]:
    (count,) = _COUNT.unpack_from(payload)
    place, headers = _COUNT.size, []
    for _ in range(count):
        name, place = read_framed(payload, place)
        content, place = read_framed(payload, place)
        headers.append(((name or b"").decode(), content))
    return payload[place:], tuple(headers)


def framed(data: bytes | None) -> bytes:
    """The length of the data, and the data."""
    return _LENGTH.pack(_NULL) if data is None else _LENGTH.pack(len(data)) + data


def read_framed(payload: bytes, place: int) -> tuple[bytes | None, int]:
    """The framed data at this place, and the place behind it."""
    (length,) = _LENGTH.unpack_from(payload, place)
    place += _LENGTH.size
    return (None, place) if length < 0 else (payload[place : place + length], place + length)
