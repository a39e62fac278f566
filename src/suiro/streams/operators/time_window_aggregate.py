"""`count`, `reduce`, `aggregate` in tumbling and hopping windows; also of co-groups, one aggregator for each port.

A record goes into every window that holds its timestamp and is not closed; each window it is too late for is counted.
A record with a null key is dropped and time does not hear of it; a null value goes to the aggregator. A result's
timestamp is the later one of the record's and the row's. An aggregator that gives None deletes the row.

Rows stay as long as the store's retention, and never less than their window is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.streams.operators.aggregate import update_of
from suiro.streams.operators.row_expiry import RowExpiry
from suiro.streams.records import Change, Headers, Record, Windowed
from suiro.streams.topology.nodes import TimeWindowAggregate
from suiro.streams.windows import EmitStrategy

if TYPE_CHECKING:
    from suiro.streams.operators.context import Context


class TimeWindowAggregateRule:
    def __init__(self, operator: TimeWindowAggregate, context: Context) -> None:
        ports = max(1, len(operator.aggregation.aggregators))
        self._updates = [update_of(operator.aggregation, port) for port in range(ports)]
        self._windows = operator.windows
        self._emits_final = operator.emit is EmitStrategy.ON_WINDOW_CLOSE
        self._store = context.store(operator.store)
        context.time.closes_after(operator.windows.size_ms + operator.windows.grace_ms)
        retention = max(self._store.spec.retention_ms or 0, operator.windows.retention_ms)
        self._expiry = RowExpiry(context, self._store, retention - 1)
        self._time = context.time
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        key = record.key
        if key is None:
            self._context.drop("null key")
            return
        windows, store, update = self._windows, self._store, self._updates[port]
        time = max(self._time.observe(record.timestamp), self._time.closed)
        for start in windows.starts_for(record.timestamp):
            end = start + windows.size_ms
            if windows.is_closed(end, time):
                self._context.drop("late")
                continue
            found = store.get_with_timestamp(key, start)
            if found is None:
                old, timestamp = None, record.timestamp
            else:
                old, timestamp = found[0], max(found[1], record.timestamp)
            new = update(key, record.value, old)
            if new is old and found is not None:
                old = store.get_with_timestamp(key, start)[0]  # the aggregator may have changed it in place
            store.put(key, new, start, timestamp)
            if not self._emits_final:
                self._forward(Record(Windowed(key, start, end), Change(new, old), timestamp, record.headers))
        self._close(record.headers)

    def end_of_batch(self) -> None:
        self._close(())

    def _close(self, headers: Headers) -> None:
        """Gives the results of the windows that closed since the last time, and lets go of old rows."""
        before, now = self._time.closed, self._time.current
        if now <= before:
            return
        self._time.closed = now
        if self._emits_final:
            # Closed are the windows that start this long before; see `TimeWindows.is_closed`.
            length = self._windows.size_ms + self._windows.grace_ms
            if now >= length:
                first = max(0, before - length + 1)
                for key, start, value, timestamp in self._store.rows_between(first, now - length):
                    windowed = Windowed(key, start, start + self._windows.size_ms)
                    self._forward(Record(windowed, Change(value), timestamp, headers))
        self._expiry.time_is(now)
