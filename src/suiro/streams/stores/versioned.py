"""The store of versioned tables (KIP-889): for each key its versions, each valid until the next, tombstones included.

A row of the ordered map is one version: `key ‖ timestamp` -> a byte that tells a value from a tombstone, and the value.
Time is the latest timestamp that was put, of all keys; its row is never removed, so it needs no row of its own. Puts
that are older than the history are refused; versions that no look-up within the history can see are removed.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

from suiro.streams.stores.ordered import KeyedStore, OrderedMap
from suiro.streams.topology.nodes import StoreSpec

_TIMESTAMP = struct.Struct(">q")
_VALUE, _TOMBSTONE = b"\x01", b"\x00"
_NO_TIME = -1


class VersionedStore(KeyedStore):
    def __init__(self, spec: StoreSpec, rows: OrderedMap) -> None:
        assert spec.retention_ms is not None, f"versioned store {spec.name} has no history"
        super().__init__(spec, rows)
        self._history_ms = spec.retention_ms
        self._time = _NO_TIME
        # Derived from the rows: each key's timestamps, ascending; and (when, row): from when on, in store time minus
        # history, a row may be out of sight.
        self._versions: dict[bytes, list[int]] = {}
        self._to_remove: list[tuple[int, bytes]] = []
        for row, data in rows.range():
            self._place(row, _TIMESTAMP.unpack(row[-8:])[0], data)

    def put(self, key: Any, value: Any, timestamp: int) -> bool | None:
        """Puts a version. Returns whether it is now the key's latest; None if it is older than the history and left
        out.

        A value of None is a tombstone: the key has no value from then on, until its next version.
        """
        if timestamp < self._time - self._history_ms:
            return None
        row = self.key_of(key) + _TIMESTAMP.pack(timestamp)
        data = _TOMBSTONE if value is None else _VALUE + self.spec.value.serialize(self._topic, value)
        self._rows.put(row, data)
        is_latest = self._place(row, timestamp, data)
        self._remove_unseen()
        return is_latest

    def delete(self, key: Any, timestamp: int) -> tuple[Any, int] | None:
        """Puts a tombstone. Returns the value and timestamp that were valid then; None also if it is older than the
        history and left out."""
        found = self.get_as_of(key, timestamp)
        return None if self.put(key, None, timestamp) is None else found

    def get(self, key: Any) -> Any:
        """Returns the latest version's value; None if there is none or it is a tombstone."""
        found = self.get_with_timestamp(key)
        return None if found is None else found[0]

    def get_with_timestamp(self, key: Any) -> tuple[Any, int] | None:
        raw = self.key_of(key)
        versions = self._versions.get(raw)
        return self._version(raw, versions[-1]) if versions else None

    table_row = get_with_timestamp

    def get_as_of(self, key: Any, timestamp: int) -> tuple[Any, int] | None:
        """Returns the value that was valid at the timestamp, and since when. Before the history, only a key's latest
        version is found."""
        raw = self.key_of(key)
        versions = self._versions.get(raw)
        if not versions:
            return None
        place = bisect_right(versions, timestamp) - 1
        is_latest = place == len(versions) - 1
        if place < 0 or (timestamp < self._time - self._history_ms and not is_latest):
            return None
        return self._version(raw, versions[place])

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Yields keys and their latest values in the order of the keys' bytes."""
        for raw in sorted(self._versions):
            found = self._version(raw, self._versions[raw][-1])
            if found is not None:
                yield self.spec.key.deserialize(self._topic, raw), found[0]

    def _place(self, row: bytes, timestamp: int, data: bytes) -> bool:
        """Takes a row among the versions of its key. Returns whether it is the latest."""
        self._time = max(self._time, timestamp)
        raw = row[:-8]
        versions = self._versions.setdefault(raw, [])
        place = bisect_left(versions, timestamp)
        if place == len(versions) or versions[place] != timestamp:
            versions.insert(place, timestamp)
            if place > 0:
                heappush(self._to_remove, (timestamp, raw + _TIMESTAMP.pack(versions[place - 1])))
        is_latest = place == len(versions) - 1
        if not is_latest:
            heappush(self._to_remove, (versions[place + 1], row))
        elif data == _TOMBSTONE:
            heappush(self._to_remove, (timestamp + 1, row))
        return is_latest

    def _version(self, raw: bytes, timestamp: int) -> tuple[Any, int] | None:
        data = self._rows.get(raw + _TIMESTAMP.pack(timestamp))
        assert data is not None  # `_versions` says so
        if data == _TOMBSTONE:
            return None
        return self.spec.value.deserialize(self._topic, data[1:]), timestamp

    def _remove_unseen(self) -> None:
        horizon = self._time - self._history_ms
        due = self._to_remove
        while due and due[0][0] <= horizon:
            _, row = heappop(due)
            raw, (timestamp,) = row[:-8], _TIMESTAMP.unpack(row[-8:])
            if self._is_unseen(row, raw, timestamp, horizon):
                self._rows.put(row, None)
                versions = self._versions[raw]
                versions.remove(timestamp)
                if not versions:
                    del self._versions[raw]

    def _is_unseen(self, row: bytes, raw: bytes, timestamp: int, horizon: int) -> bool:
        data = self._rows.get(row)
        if data is None:
            return False  # removed before
        versions = self._versions[raw]
        if versions[-1] == timestamp:
            # The last version stays, unless it says that there is nothing. A value may have taken its place meanwhile.
            # Older versions left before it, for they were due when it came.
            return data == _TOMBSTONE and timestamp < horizon
        return versions[bisect_right(versions, timestamp)] <= horizon
