"""The store of one side of a stream-stream join: its records by key and time, those of the same key and time too.

A row of the ordered map is `key ‖ timestamp ‖ sequence` -> value. Time is the latest timestamp that was put; its row
outlives all others, so it needs no row of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from suiro.streams.stores.ordered import OrderedMap
from suiro.streams.topology.nodes import StoreSpec

__all__ = ["StreamJoinStore"]

_PLACE = struct.Struct(">qi")
_LAST_SEQUENCE = (1 << 31) - 1
_NO_TIME = -1


class StreamJoinStore:
    def __init__(self, spec: StoreSpec, rows: OrderedMap) -> None:
        self.spec = spec
        self._rows = rows
        self._topic = f"{spec.name}-changelog"
        # Derived from the rows; the first leaves first.
        self._by_time = [(_PLACE.unpack(row[-_PLACE.size :])[0], row) for row, _ in rows.range()]
        self.time: int = max((timestamp for timestamp, _ in self._by_time), default=_NO_TIME)
        """The latest timestamp put; -1 before the first."""
        heapify(self._by_time)

    def put(self, key: Any, value: Any, timestamp: int) -> None:
        raw = self.spec.key.serialize(self._topic, key)
        row = raw + _PLACE.pack(timestamp, 0)
        if self._rows.get(row) is not None:
            *_, (last, _) = self._rows_of(raw, timestamp, timestamp)
            row = raw + _PLACE.pack(timestamp, _PLACE.unpack(last[-_PLACE.size :])[1] + 1)
        self._rows.put(row, self.spec.value.serialize(self._topic, value))
        heappush(self._by_time, (timestamp, row))
        self.time = max(self.time, timestamp)

    def fetch(self, key: Any, first: int, last: int) -> Iterator[tuple[int, Any]]:
        """Timestamps and values of a key with `first <= timestamp <= last`, in the order of time, then of arrival."""
        for row, value in self._rows_of(self.spec.key.serialize(self._topic, key), first, last):
            yield _PLACE.unpack(row[-_PLACE.size :])[0], self.spec.value.deserialize(self._topic, value)

    def all(self) -> Iterator[tuple[Any, int, Any]]:
        """Keys, timestamps and values, in the order of rows."""
        for row, value in self._rows.range():
            timestamp, _ = _PLACE.unpack(row[-_PLACE.size :])
            key = self.spec.key.deserialize(self._topic, row[: -_PLACE.size])
            yield key, timestamp, self.spec.value.deserialize(self._topic, value)

    def expire(self, before: int) -> None:
        """Removes records with an earlier timestamp, but for the latest, which is the store's time."""
        before = min(before, self.time)
        while self._by_time and self._by_time[0][0] < before:
            self._rows.put(heappop(self._by_time)[1], None)

    def _rows_of(self, raw: bytes, first: int, last: int) -> Iterator[tuple[bytes, bytes]]:
        first = max(first, 0)
        if last < first:
            return iter(())
        found = self._rows.range(
            raw + _PLACE.pack(first, 0), raw + _PLACE.pack(last, _LAST_SEQUENCE) + b"\x00"
        )
        # Rows of longer keys that begin with this one lie in between.
        length = len(raw) + _PLACE.size
        return (item for item in found if len(item[0]) == length)
