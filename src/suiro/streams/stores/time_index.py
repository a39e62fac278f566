"""Finds the old rows of a windowed store without a look at the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sortedcontainers import SortedDict

from suiro.streams.records import LATEST_MS


class TimeIndex:
    """The rows of a store by the time in their keys. It is kept in memory, and built when the store is opened."""

    def __init__(self, rows: Iterable[bytes], time_of: Callable[[bytes], int]) -> None:
        # The dict is a set that keeps its order: two runs of the same records do the same.
        self._rows: SortedDict[int, dict[bytes, None]] = SortedDict()
        for row in rows:
            self._rows.setdefault(time_of(row), {})[row] = None
        self._oldest = self._first()

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

    def between(self, first: int, last: int) -> Iterator[Iterable[bytes]]:
        """Yields the rows of each time with first <= time <= last. Rows may come and go while this is consumed."""
        for time in list(self._rows.irange(first, last)):
            yield self._rows.get(time, ())

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
