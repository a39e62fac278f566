"""The key-value store of tables and aggregates: a row is its timestamp (int64) and the serialised value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from suiro.streams.stores.decoded import Cells, Snapshot
from suiro.streams.stores.ordered import KeyedStore, OrderedMap
from suiro.streams.topology.nodes import StoreSpec

UNKNOWN_TIMESTAMP = -1


class KeyValueStore(KeyedStore):
    def __init__(self, spec: StoreSpec, rows: OrderedMap, *, keeps: bool = False) -> None:
        """`keeps`: see `decoded.Cells`."""
        super().__init__(spec, rows)
        self._cells = Cells(spec, rows, stamped=True, keeps=keeps)
        self.replaced: list[tuple[bytes, Snapshot]] | None = None
        """If it is a list, each put appends its key and the row before it. The reader empties the list."""

    def get(self, key: Any) -> Any:
        """Returns None if there is no row."""
        found = self.get_with_timestamp(key)
        return None if found is None else found[0]

    def get_with_timestamp(self, key: Any) -> tuple[Any, int] | None:
        return self.row_at(self.spec.key.serialize(self._topic, key))

    table_row = get_with_timestamp

    def put(self, key: Any, value: Any, timestamp: int = UNKNOWN_TIMESTAMP) -> None:
        """A value of None deletes the row."""
        self.put_at(self.spec.key.serialize(self._topic, key), value, timestamp)

    def row_at(self, raw: bytes) -> tuple[Any, int] | None:
        return self._cells.get(raw)

    def put_at(self, raw: bytes, value: Any, timestamp: int) -> None:
        before = None if self.replaced is None else self._cells.snapshot(raw)
        if value is None:
            self._rows.put(raw, None)
        else:
            self._cells.put(raw, value, timestamp)
        if self.replaced is not None:
            self.replaced.append((raw, before))

    def row_of(self, snapshot: Snapshot) -> tuple[Any, int] | None:
        """Returns a row that was replaced, as `row_at` returned it then."""
        return self._cells.row_of(snapshot)

    def put_if_absent(self, key: Any, value: Any, timestamp: int = UNKNOWN_TIMESTAMP) -> Any:
        found = self.get(key)
        if found is None:
            self.put(key, value, timestamp)
        return found

    def delete(self, key: Any) -> Any:
        """Deletes the row and returns its value."""
        found = self.get(key)
        self.put(key, None)
        return found

    def range(self, first: Any = None, last: Any = None, *, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yields rows with first <= key <= last in the order of the keys' bytes; None is unbounded."""
        low = None if first is None else self.key_of(first)
        # Behind a key of bytes comes first that key with a zero byte added.
        high = None if last is None else self.key_of(last) + b"\x00"
        return self._decoded(self._rows.range(low, high, reverse=reverse))

    def all(self) -> Iterator[tuple[Any, Any]]:
        return self._decoded(self._rows.range())

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[Any, Any]]:
        """Yields rows whose serialised key begins with these bytes."""
        return self._decoded(self._rows.prefix(prefix))

    def approximate_num_entries(self) -> int:
        return len(self._rows)

    def _decoded(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        for key, data in rows:
            yield self.spec.key.deserialize(self._topic, key), self._cells.decoded(data)[0]
