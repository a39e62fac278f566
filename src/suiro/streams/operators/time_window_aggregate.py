"""`count`, `reduce`, `aggregate` in tumbling and hopping windows; also of co-groups, one aggregator for each port.

A record goes into every window that holds its timestamp and is not closed; each window it is too late for is counted.
A null value goes to the aggregator. A result's timestamp is the later one of the record's and the row's. An aggregator
that gives None deletes the row.

Rows stay as long as the store's retention, and never less than their window is open.
"""

from __future__ import annotations

from typing import Any

from suiro.streams.operators.row_expiry import OperatorContext
from suiro.streams.operators.windowing import Give, Windowing
from suiro.streams.records import Change, Windowed
from suiro.streams.topology.nodes import TimeWindowAggregate


class TimeWindowing(Windowing):
    def __init__(self, operator: TimeWindowAggregate, context: OperatorContext, *, reads_old: bool) -> None:
        self._windows = operator.windows
        self._length = self._windows.size_ms + self._windows.grace_ms
        super().__init__(operator, context, delay_ms=self._length, kept_longer_ms=-1, reads_old=reads_old)
        self.gives_several = self._emits_final or self._windows.advance_ms != self._windows.size_ms

    def take(self, key: Any, raw: bytes | None, value: Any, timestamp: int, port: int, give: Give) -> None:
        windows, store, update = self._windows, self._store, self._updates[port]
        reads_old, emits_final = self._reads_old, self._emits_final
        time = max(self._time.observe(timestamp), self._time.closed)
        for start in windows.starts_for(timestamp):
            end = start + windows.size_ms
            if windows.is_closed(end, time):
                self._drop("late")
                continue
            if raw is None:
                raw = store.key_of(key)
            found = store.row_at(raw, start)
            old, latest = None, timestamp
            if found is not None:
                old, latest = found[0], max(found[1], timestamp)
            new = update(key, value, old)
            if new is old and found is not None and reads_old:
                old = store.row_at(raw, start)[0]  # the aggregator may have changed it in place
            store.put_at(raw, new, start, latest)
            if not emits_final:
                give(Windowed(key, start, end), Change(new, old if reads_old else None), latest)

    def _give_closed(self, before: int, now: int, give: Give) -> None:
        # Closed are the windows that start this long before; see `TimeWindows.is_closed`.
        if now >= self._length:
            first = max(0, before - self._length + 1)
            for key, start, value, timestamp in self._store.rows_between(first, now - self._length):
                give(Windowed(key, start, start + self._windows.size_ms), Change(value), timestamp)
