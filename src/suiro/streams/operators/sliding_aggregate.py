"""`count`, `reduce`, `aggregate` in sliding windows (KIP-450); also of co-groups, one aggregator for each port.

A key has two windows for each record at t: the one that ends at t, and the one that starts at t + 1 if any record is
in it; both ends are inclusive. Windows never start before 0: records at t < difference share the window that starts
there. A row's timestamp is that of the latest record in it, which is how the record before another one is found.

A record goes into each of its windows that is not closed. One that is too late for all is dropped; each window that
it is too late for is counted.

Rows stay as long as a record may come whose windows are found by them: for twice the difference and the grace after
their start, and 1 ms more. Kafka Streams removes them earlier, so such windows can be missing there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from suiro.streams.operators.aggregate import Update
from suiro.streams.operators.context import OperatorContext
from suiro.streams.operators.windowing import Give, Windowing
from suiro.streams.records import Change, Windowed
from suiro.streams.topology.nodes import SlidingAggregate

_Row = tuple[Any, int]
"""An aggregate, and the timestamp of its latest record."""


class _InHand(msgspec.Struct, frozen=True):
    """The record in hand. `time`: the time it is judged by."""

    key: Any
    value: Any
    timestamp: int
    update: Update
    time: int
    give: Give


class SlidingWindowing(Windowing):
    drops_null_values = True

    def __init__(self, operator: SlidingAggregate, context: OperatorContext, *, reads_old: bool) -> None:
        self._windows = operator.windows
        self._difference = self._windows.difference_ms
        self._length = self._difference + self._windows.grace_ms
        # The window that starts after a record is open until difference + grace + 1 after the record. The record is
        # found by the window that ends at it, which starts one difference earlier.
        super().__init__(operator, context, delay_ms=self._length, kept_longer_ms=1, reads_old=reads_old)

    def take(self, key: Any, raw: bytes | None, value: Any, timestamp: int, port: int, give: Give) -> None:
        time = max(self._time.observe(timestamp), self._time.closed)
        if self._windows.is_closed(timestamp + self._difference, time):
            self._drop("late")
            return
        record = _InHand(key, value, timestamp, self._updates[port], time, give)
        if timestamp < self._difference:
            self._take_early(record)
        else:
            self._take(record)

    def _take(self, record: _InHand) -> None:
        key, t, difference = record.key, record.timestamp, self._difference
        before: int | None = None  # the latest record's timestamp before t
        left: Any = None  # the aggregate of what is before t in the window that ends at t
        right: _Row | None = None  # the window that starts behind t, where it must be made
        seen: set[int] = set()
        has_left = False
        for start, value, latest in self._store.fetch_rows(key, t - 2 * difference, t + 1, reverse=True):
            end = start + difference
            if start == t + 1:
                seen.add(start)
            elif end > t:
                if t + 1 not in seen:
                    # Earlier windows hold no more records after t.
                    right = self._store.get_with_timestamp(key, start) if latest > t else None
                    seen.add(t + 1)
                seen.add(start)
                self._update(record, start, (value, latest), is_new=False)
            elif end == t:
                has_left = True
                self._update(record, start, (value, latest), is_new=False)
                if latest == t:  # nothing is new for the windows of this time
                    return
                before = latest
                seen.add(start)
            else:
                left, before = value, latest
                seen.add(start)
                break
        if before is not None and before + 1 not in seen and before + 1 + difference >= t:
            self._update(record, before + 1, None, is_new=True)
        if not has_left:
            base = (left, t) if before is not None and before >= t - difference else None
            self._update(record, t - difference, base, is_new=True)
        if right is not None:
            self._make(record, t + 1, right)

    def _take_early(self, record: _InHand) -> None:
        """The window that ends at the record would start before 0; the one that starts at 0 stands for it."""
        key, t = record.key, record.timestamp
        first: _Row | None = None
        right: _Row | None = None
        seen: set[int] = set()
        for start, value, latest in self._store.fetch_rows(key, 0, t + 1):
            seen.add(start)
            if start == 0:
                first = (value, latest)
            elif start <= t:
                right = self._store.get_with_timestamp(key, start)
                self._update(record, start, (value, latest), is_new=False)
        if right is None and first is not None:
            # No window starts between 0 and t, so there is no record before t if there is one after it.
            right = self._store.get_with_timestamp(key, 0)
        if t + 1 not in seen and right is not None and right[1] > t:
            self._make(record, t + 1, right)
        if first is not None and first[1] < t and first[1] + 1 not in seen:
            self._update(record, first[1] + 1, None, is_new=True)
        self._update(record, 0, first, is_new=first is None)

    def _update(self, record: _InHand, start: int, base: _Row | None, *, is_new: bool) -> None:
        """Puts the record into a window; `base` is the row before, or what a new one starts from."""
        key, end = record.key, start + self._difference
        if self._windows.is_closed(end, record.time):
            self._drop("late")
            return
        old, timestamp = (None, record.timestamp) if base is None else (base[0], max(base[1], record.timestamp))
        new = record.update(key, record.value, old)
        if is_new or new is old:
            # The aggregator may have changed the old row in place. If the window that starts after the previous record
            # is the one that ends at this record, it is made twice, and the second time there is a row.
            there = self._store.get_with_timestamp(key, start)
            old = None if there is None else there[0]
        self._store.put(key, new, start, timestamp)
        if not self._emits_final:
            record.give(Windowed(key, start, end), Change(new, old), timestamp)

    def _make(self, record: _InHand, start: int, row: _Row) -> None:
        """Makes a window that the record is not in."""
        self._store.put(record.key, row[0], start, row[1])
        if not self._emits_final:
            window = Windowed(record.key, start, start + self._difference)
            record.give(window, Change(row[0]), row[1])

    def _give_closed(self, before: int, now: int, give: Give) -> None:
        # Closed are the windows that start before this; see `SlidingWindows.is_closed`.
        first, last = before - self._length, now - self._length - 1
        for key, start, value, timestamp in self._store.rows_between(first, last):
            give(Windowed(key, start, start + self._difference), Change(value), timestamp)
