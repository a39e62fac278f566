"""The one primitive under every store: an ordered map of bytes that remembers what changed.

A runner makes the changes since the last `take_changes` durable and writes them to the changelog topic. Every kind of
store is a key layout over this map, so one format persists them all.

A row may be held as a `Row`, whose bytes are made when they are asked for, at the latest when the changes are taken. So
a row that changes many times in a micro-batch is encoded once (`decoded`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from sortedcontainers import SortedList

from suiro.streams.serdes import encode_rows
from suiro.streams.serdes.block_forms import Failed
from suiro.streams.topology.nodes import StoreSpec

SAMPLE_ROWS = 100
HELD_ROWS_MAX = 50_000
"""The most rows of one map that are not held as bytes. With one more, all of them become bytes."""


class Row(Protocol):
    def encoded(self) -> bytes: ...


class OrderedMap:
    def __init__(self, items: Iterable[tuple[bytes, bytes]] = (), *, held_max: int = HELD_ROWS_MAX) -> None:
        self._rows: dict[bytes, bytes | Row] = dict(items)
        self._changes: dict[bytes, bytes | Row | None] = {}
        self._read: list[bytes] = []  # keys of held rows that are no changes
        self._held = 0
        self._held_max = held_max
        self.write: Callable[[Sequence[Any]], None] | None = None
        """Encodes many held rows together, which takes less time, before each is asked for its bytes."""
        # Most maps are only asked for single keys, so the order is made when a part of it is asked for.
        self._order: SortedList[bytes] | None = None
        self._unordered: dict[bytes, bool] = {}  # keys that came (True) or went since the order was made

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: bytes) -> bool:
        return key in self._rows

    @property
    def bytes_about(self) -> int:
        """The approximate bytes of keys and rows, estimated from the first rows. To be asked for after the changes were
        taken."""
        some = [
            len(key) + (len(row) if type(row) is bytes else 0) for key, row in islice(self._rows.items(), SAMPLE_ROWS)
        ]
        return sum(some) * len(self._rows) // max(len(some), 1)

    def get(self, key: bytes) -> bytes | None:
        row = self._rows.get(key)
        return row if row is None or type(row) is bytes else _bytes_of(row)

    def held(self, key: bytes) -> bytes | Row | None:
        """Returns the row as it is held: its bytes or a `Row`."""
        return self._rows.get(key)

    def put(self, key: bytes, row: bytes | Row | None) -> None:
        """Puts a row; None deletes it."""
        if row is None:
            self._remove(key)
        else:
            if self._order is not None:
                self._come(key)
            self._rows[key] = row
        self._changes[key] = row
        if row is not None and type(row) is not bytes:
            self._held += 1
            if self._held > self._held_max:
                self._let_go()

    def hold(self, key: bytes, row: Row) -> None:
        """Holds an existing row in another form. This is no change."""
        self._rows[key] = row
        self._read.append(key)
        self._held += 1
        if self._held > self._held_max:
            self._let_go()

    def range(
        self, first: bytes | None = None, last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yields rows with `first <= key < last` in the order of their bytes; None is unbounded.

        The map may change while this is consumed. The keys are chosen at the call; a row deleted meanwhile is left out.
        """
        return self._items(self.keys(first, last, reverse=reverse))

    def keys(self, first: bytes | None = None, last: bytes | None = None, *, reverse: bool = False) -> list[bytes]:
        """Returns the keys of `range`."""
        if self._order is None:
            if first is None and last is None:
                return sorted(self._rows, reverse=reverse)
            self._order = SortedList(self._rows)
        elif self._unordered:
            self._put_in_order(self._order)
        order: SortedList[bytes] = self._order
        return list(order.irange(first, last, inclusive=(True, False), reverse=reverse))

    def prefix(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.range(prefix, after_prefix(prefix))

    def take_changes(self) -> dict[bytes, bytes | None]:
        """Returns the last row of every key that was put since the last call; None if it was deleted."""
        self._let_go()
        changes, self._changes = self._changes, {}
        return changes  # type: ignore[return-value]  # no row is held any more

    def unordered(self) -> Mapping[bytes, bytes]:
        """Returns all rows in no order, not to be kept. To be asked for after the changes were taken."""
        return self._rows  # type: ignore[return-value]  # no row is held any more

    def restore(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Applies what another map's `take_changes` returned. It does not count as a change of this map."""
        for key, value in changes:
            if value is None:
                self._remove(key)
            else:
                if self._order is not None:
                    self._come(key)
                self._rows[key] = value

    def _come(self, key: bytes) -> None:
        if key not in self._rows and self._unordered.pop(key, True):
            self._unordered[key] = True

    def _remove(self, key: bytes) -> None:
        if self._rows.pop(key, None) is None or self._order is None:
            return
        if not self._unordered.pop(key, False):
            self._unordered[key] = False

    def _put_in_order(self, order: SortedList[bytes]) -> None:
        moved = self._unordered
        if len(moved) > len(order) // 4 + 16:
            self._order = SortedList(self._rows)
        else:
            for key, came in moved.items():
                if came:
                    order.add(key)
                else:
                    order.remove(key)
        moved.clear()

    def _items(self, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        for key in keys:
            value = self.get(key)
            if value is not None:
                yield key, value

    def _let_go(self) -> None:
        """Turns held rows into bytes."""
        rows, changes = self._rows, self._changes
        if self.write is not None:
            held = [row for row in changes.values() if row is not None and type(row) is not bytes]
            if held:
                self.write(held)
        for key, row in changes.items():
            if row is not None and type(row) is not bytes:
                rows[key] = changes[key] = _bytes_of(row)
        for key in self._read:
            read = rows.get(key)
            if read is not None and type(read) is not bytes:
                rows[key] = _bytes_of(read)
        self._read.clear()
        self._held = 0


class KeyedStore:
    """The base of the stores whose rows begin with the bytes of a key."""

    def __init__(self, spec: StoreSpec, rows: OrderedMap) -> None:
        self.spec = spec
        self._rows = rows
        self._topic = f"{spec.name}-changelog"

    def key_of(self, key: Any) -> bytes:
        """Returns the bytes of a key, for the methods whose names end in `_at`."""
        return self.spec.key.serialize(self._topic, key)

    def keys_of(self, keys: Sequence[Any]) -> tuple[list[bytes | None], Failed]:
        """Returns the bytes of keys, None for each that failed, and the failures."""
        return encode_rows(self.spec.key, keys, self._topic)


def _bytes_of(row: bytes | Row) -> bytes:
    return row if isinstance(row, bytes) else row.encoded()


def after_prefix(prefix: bytes) -> bytes | None:
    """Returns the first key behind all keys that begin with `prefix`; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
