"""The one primitive under every store: an ordered map of bytes that remembers what changed.

What changed since the last `take_changes` is what a runner makes durable and what a changelog topic gets. Every store
kind is a key layout over this map, so one format persists them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedDict

__all__ = ["OrderedMap", "after_prefix"]


class OrderedMap:
    def __init__(self, items: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._rows: SortedDict[bytes, bytes] = SortedDict(items)
        self._changes: dict[bytes, bytes | None] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """None deletes."""
        if value is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = value
        self._changes[key] = value

    def range(
        self, first: bytes | None = None, last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `first <= key < last` in the order of their bytes; None is unbounded.

        The map may change while this is consumed: keys are chosen at the call, a row deleted meanwhile is left out.
        """
        rows = self._rows
        keys = list(rows.irange(first, last, inclusive=(True, False), reverse=reverse))
        for key in keys:
            value = rows.get(key)
            if value is not None:
                yield key, value

    def prefix(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.range(prefix, after_prefix(prefix))

    def take_changes(self) -> dict[bytes, bytes | None]:
        """Last value of every key that was put since the last call; None where it was deleted."""
        changes, self._changes = self._changes, {}
        return changes

    def restore(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Applies what another map's `take_changes` gave; nothing of it counts as a change of this one."""
        for key, value in changes:
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value


def after_prefix(prefix: bytes) -> bytes | None:
    """The first key behind all keys that begin with `prefix`; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
