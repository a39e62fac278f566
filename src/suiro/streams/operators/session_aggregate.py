"""`count`, `reduce`, `aggregate` in sessions; also of co-groups, one aggregator for each port.

A record makes a session of its own, merged with every session of its key that is no further than the gap. The merged
ones are removed, and their removal goes on first. A result's timestamp is the session's end. A null value goes to the
aggregator. An aggregator that gives None removes the session: the key's next record begins a new one.

A session is extended only while its end is later than time, as it was before the record, less gap and grace. A record
that would make a session that is closed already is late.
"""

from __future__ import annotations

from typing import Any

from suiro.streams.operators.aggregate import Update
from suiro.streams.operators.context import OperatorContext
from suiro.streams.operators.functions import callable_of
from suiro.streams.operators.windowing import Give, Windowing
from suiro.streams.records import Change, Windowed
from suiro.streams.topology.nodes import SessionAggregate


class SessionWindowing(Windowing):
    def __init__(self, operator: SessionAggregate, context: OperatorContext, *, reads_old: bool) -> None:
        self._windows = operator.windows
        super().__init__(operator, context, delay_ms=operator.windows.closing_delay_ms, reads_old=reads_old)
        self._initializer = operator.aggregation.initializer
        merger, (update,) = operator.merger, self._updates[:1]
        self._merge: Update
        """(key, aggregate, aggregate of a further session) -> that of both."""
        if operator.aggregation.kind == "count":
            self._merge = lambda key, count, further: (count or 0) + further
        elif merger is None:
            self._merge = lambda key, found, further: update(key, further, found)
        else:
            self._merge = callable_of(merger, "key_value_aggregate")

    def take(self, key: Any, raw: bytes | None, value: Any, timestamp: int, port: int, give: Give) -> None:
        gap, delay, store = self._windows.gap_ms, self._windows.closing_delay_ms, self._store
        # A carried time later than the record's is that of earlier records, also of other tasks.
        time_before = max(self._time.current, self._time.closed)
        if self._time.carried > timestamp:
            time_before = max(time_before, self._time.carried)
        time = max(self._time.observe(timestamp), self._time.closed)
        if raw is None:
            raw = store.key_of(key)
        merged = store.sessions_at(raw, max(timestamp - gap, time_before - delay + 1), timestamp + gap)
        start = end = timestamp
        for earlier, later, _ in merged:
            if earlier < start:
                start = earlier
            if later > end:
                end = later
        if self._windows.is_closed(end, time):
            self._drop("late")
            return
        total = self._initializer() if merged and self._initializer is not None else None
        for _, _, found in merged:
            total = self._merge(key, total, found)
        new = self._updates[port](key, value, total)
        # Merging may have changed the values in place, so the old values are read again, before the new row replaces
        # one of them.
        replaced = [] if start == end else [(one, other) for one, other, _ in merged]
        old_values = [self._old(raw, one, other) for one, other in (*replaced, (start, end))]
        old = None if replaced else old_values[-1]
        # A function that fails, or a value that cannot be written, leaves everything as it was.
        store.put_at(raw, new, start, end)
        for (one, other), before in zip(replaced, old_values, strict=False):
            if (one, other) != (start, end):
                store.put_at(raw, None, one, other)
            if not self._emits_final:
                give(Windowed(key, one, other), Change(None, before), other)
        if not self._emits_final:
            give(Windowed(key, start, end), Change(new, old), end)

    def _old(self, raw: bytes, start: int, end: int) -> Any:
        return self._store.value_at(raw, start, end) if self._reads_old else None

    def _give_closed(self, before: int, now: int, give: Give) -> None:
        # Closed are the sessions that end before this; see `SessionWindows.is_closed`.
        delay = self._windows.closing_delay_ms
        for session, value in self._store.ending_between(before - delay, now - delay - 1):
            give(session, Change(value), session.end)
