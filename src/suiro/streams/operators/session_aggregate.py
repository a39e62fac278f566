"""`count`, `reduce`, `aggregate` in sessions; also of co-groups, one aggregator for each port.

A record makes a session of its own, merged with every session of its key that is no further than the gap. The merged
ones are removed, and their removal goes on first. A result's timestamp is the session's end. A record with a null key
is dropped and time does not hear of it; a null value goes to the aggregator. An aggregator that gives None removes
the session: the key's next record begins a new one.

A session is extended only while its end is later than time, as it was before the record, less gap and grace. A record
that would make a session that is closed already is late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from suiro.streams.errors import TopologyError
from suiro.streams.operators.aggregate import update_of
from suiro.streams.operators.functions import callable_of
from suiro.streams.operators.row_expiry import RowExpiry
from suiro.streams.records import Change, Headers, Record, Windowed
from suiro.streams.topology.nodes import SessionAggregate
from suiro.streams.windows import EmitStrategy

if TYPE_CHECKING:
    from suiro.streams.operators.context import Context
    from suiro.streams.operators.row_expiry import Around
    from suiro.streams.stores.session import SessionStore


Give = Callable[[Windowed, Change, int], None]
"""(key, change, timestamp) of a result."""


class Sessions:
    """What a record does to the sessions of its key; for `SessionAggregateRule`, and for blocks.

    `reads_old`: somebody below reads the old values of changes.
    """

    def __init__(self, operator: SessionAggregate, context: Around, *, reads_old: bool = True) -> None:
        ports = max(1, len(operator.aggregation.aggregators))
        self._updates = [update_of(operator.aggregation, port) for port in range(ports)]
        self._merge = _merger_of(operator)
        self._windows = operator.windows
        self._emits_final = operator.emit is EmitStrategy.ON_WINDOW_CLOSE
        self._reads_old = reads_old and not self._emits_final
        self._store: SessionStore = context.store(operator.store)
        context.time.closes_after(operator.windows.closing_delay_ms)
        retention = max(self._store.spec.retention_ms or 0, operator.windows.retention_ms)
        self._expiry = RowExpiry(context, self._store, retention)
        self._time = context.time
        self._drop = context.drop
        self.keys_of = self._store.keys_of

    def take(self, key: Any, raw: bytes | None, value: Any, timestamp: int, port: int, give: Give) -> None:
        """`raw`: the bytes of the key; None: not known."""
        gap, delay, store = self._windows.gap_ms, self._windows.closing_delay_ms, self._store
        # What is later than the record came by records before it, of other tasks too.
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
        new = self._updates[port](key, value, self._merge(key, [found for _, _, found in merged]))
        # Merging may have changed the values in place, so the old ones are read again; and before the new row is put,
        # which may be in the place of one of them.
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

    def close(self, give: Give) -> None:
        """Gives the results of the sessions that closed since the last time, and lets go of old ones."""
        before, now = self._time.closed, self._time.current
        if now <= before:
            return
        self._time.closed = now
        if self._emits_final:
            # Closed are the sessions that end before this; see `SessionWindows.is_closed`.
            delay = self._windows.closing_delay_ms
            for session, value in self._store.ending_between(before - delay, now - delay - 1):
                give(session, Change(value), session.end)
        self._expiry.time_is(now)


class SessionAggregateRule:
    def __init__(self, operator: SessionAggregate, context: Context) -> None:
        self._sessions = Sessions(operator, context)
        self._headers: Headers = ()
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        if record.key is None:
            self._context.drop("null key")
            return
        self._headers = record.headers
        self._sessions.take(record.key, None, record.value, record.timestamp, port, self._give)
        self._sessions.close(self._give)

    def end_of_batch(self) -> None:
        self._headers = ()
        self._sessions.close(self._give)

    def _give(self, key: Windowed, change: Change, timestamp: int) -> None:
        self._forward(Record(key, change, timestamp, self._headers))


def _merger_of(operator: SessionAggregate) -> Callable[[Any, list[Any]], Any]:
    """(key, values of sessions) -> what the sessions amount to together; None for none."""
    aggregation = operator.aggregation
    match aggregation.kind:
        case "count":
            return lambda key, values: sum(values) or None
        case "reduce":
            reducer = callable_of(aggregation.aggregators[0], "left_right")

            def reduced(key: Any, values: list[Any]) -> Any:
                found = None
                for value in values:
                    found = value if found is None else reducer(found, value)
                return found

            return reduced
        case "aggregate":
            initializer = aggregation.initializer
            if operator.merger is None or initializer is None:
                raise TopologyError(
                    "aggregate over sessions needs a merger, which makes one aggregate of two: "
                    "aggregate(initializer, aggregator, merger)"
                )
            merger = callable_of(operator.merger, "key_value_aggregate")

            def merged(key: Any, values: list[Any]) -> Any:
                if not values:
                    return None
                found = initializer()
                for value in values:
                    found = merger(key, found, value)
                return found

            return merged
