"""The store of one side of a stream-stream join: its records by key and time, those of the same key and time too.

A row of the ordered map is `key ‖ timestamp ‖ sequence` -> value. Time is the latest timestamp that was put; its row
outlives all others, so it needs no row of its own.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from suiro.streams.serdes.block_forms import Failed, encode_rows
from suiro.streams.stores.ordered import KeyedStore, OrderedMap
from suiro.streams.topology.nodes import StoreSpec

_PLACE = struct.Struct(">qi")
_NO_TIME = -1


class StreamJoinStore(KeyedStore):
    def __init__(self, spec: StoreSpec, rows: OrderedMap) -> None:
        super().__init__(spec, rows)
        # Derived from the rows: the first leaves first; and each key's timestamps and sequences, in order.
        self._by_time: list[tuple[int, bytes]] = []
        self._of_key: dict[bytes, list[tuple[int, int]]] = {}
        for row in rows.keys():  # noqa: SIM118 - in their order
            place = _PLACE.unpack(row[-_PLACE.size :])
            self._by_time.append((place[0], row))
            self._of_key.setdefault(row[: -_PLACE.size], []).append(place)
        self.time: int = max((timestamp for timestamp, _ in self._by_time), default=_NO_TIME)
        """The latest timestamp put; -1 before the first."""
        heapify(self._by_time)

    def data_of(self, value: Any) -> bytes:
        """Returns the bytes of a value, for `put_at`."""
        return self.spec.value.serialize(self._topic, value)

    def all_data_of(self, values: Sequence[Any]) -> tuple[list[bytes | None], Failed]:
        return encode_rows(self.spec.value, values, self._topic)

    def put_at(self, raw: bytes, data: bytes, timestamp: int) -> None:
        places = self._of_key.get(raw)
        sequence = 0
        if places is not None and raw + _PLACE.pack(timestamp, 0) in self._rows:
            sequence = places[bisect_left(places, (timestamp + 1,)) - 1][1] + 1
        row = raw + _PLACE.pack(timestamp, sequence)
        self._rows.put(row, data)
        if places is None:
            self._of_key[raw] = [(timestamp, sequence)]
        elif places[-1] < (timestamp, sequence):
            places.append((timestamp, sequence))
        else:
            insort(places, (timestamp, sequence))
        heappush(self._by_time, (timestamp, row))
        self.time = max(self.time, timestamp)

    def fetch_at(self, raw: bytes, first: int, last: int) -> list[tuple[int, Any]]:
        """Returns timestamps and values of a key with `first <= timestamp <= last`, in the order of time, then of
        arrival."""
        places = self._of_key.get(raw)
        if places is None or places[-1][0] < first:
            return []
        found = []
        for place in places[bisect_left(places, (max(first, 0),)) : bisect_left(places, (last + 1,))]:
            data = self._rows.get(raw + _PLACE.pack(*place))
            assert data is not None  # `_of_key` says so
            found.append((place[0], self.spec.value.deserialize(self._topic, data)))
        return found

    def expire(self, before: int) -> None:
        """Removes records with an earlier timestamp, except the latest, which is the store's time."""
        before = min(before, self.time)
        expired: dict[bytes, None] = {}
        while self._by_time and self._by_time[0][0] < before:
            row = heappop(self._by_time)[1]
            self._rows.put(row, None)
            expired[row[: -_PLACE.size]] = None
        for raw in expired:  # each list once: a key may have most of the records
            places = self._of_key[raw]
            del places[: bisect_left(places, (before,))]
            if not places:
                del self._of_key[raw]
