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

__all__ = ["SessionAggregateRule"]


class SessionAggregateRule:
    def __init__(self, operator: SessionAggregate, context: Context) -> None:
        ports = max(1, len(operator.aggregation.aggregators))
        self._updates = [update_of(operator.aggregation, port) for port in range(ports)]
        self._merge = _merger_of(operator)
        self._windows = operator.windows
        self._emits_final = operator.emit is EmitStrategy.ON_WINDOW_CLOSE
        self._store = context.store(operator.store)
        retention = max(self._store.spec.retention_ms or 0, operator.windows.retention_ms)
        self._expiry = RowExpiry(context, self._store, retention)
        self._time = context.time
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        key, timestamp = record.key, record.timestamp
        if key is None:
            self._context.drop("null key")
            return
        gap, delay, store = self._windows.gap_ms, self._windows.closing_delay_ms, self._store
        # What is later than the record came by records before it, of other tasks too.
        time_before = max(self._time.current, self._time.closed)
        if self._time.carried > timestamp:
            time_before = max(time_before, self._time.carried)
        time = max(self._time.observe(timestamp), self._time.closed)
        earliest_end = max(timestamp - gap, time_before - delay + 1)
        merged = list(store.find_sessions(key, earliest_end, timestamp + gap))
        start = min([timestamp, *(session.start for session, _ in merged)])
        end = max([timestamp, *(session.end for session, _ in merged)])
        if self._windows.is_closed(end, time):
            self._context.drop("late")
        else:
            aggregate = self._merge(key, merged)
            old = None
            if start == end:
                old = store.fetch_session(key, start, end)
            else:
                self._remove(merged, record.headers)
            new = self._updates[port](key, record.value, aggregate)
            store.put(key, new, start, end)
            if not self._emits_final:
                self._forward(Record(Windowed(key, start, end), Change(new, old), end, record.headers))
        self._close(record.headers)

    def end_of_batch(self) -> None:
        self._close(())

    def _remove(self, sessions: list[tuple[Windowed, Any]], headers: Headers) -> None:
        for session, _ in sessions:
            # Read again: merging may have changed the value in place.
            old = self._store.fetch_session(session.key, session.start, session.end)
            self._store.remove(session.key, session.start, session.end)
            if not self._emits_final:
                self._forward(Record(session, Change(None, old), session.end, headers))

    def _close(self, headers: Headers) -> None:
        """Gives the results of the sessions that closed since the last time, and lets go of old ones."""
        before, now = self._time.closed, self._time.current
        if now <= before:
            return
        self._time.closed = now
        if self._emits_final:
            # Closed are the sessions that end before this; see `SessionWindows.is_closed`.
            delay = self._windows.closing_delay_ms
            for session, value in self._store.ending_between(before - delay, now - delay - 1):
                self._forward(Record(session, Change(value), session.end, headers))
        self._expiry.time_is(now)


def _merger_of(operator: SessionAggregate) -> Callable[[Any, list[tuple[Windowed, Any]]], Any]:
    """(key, sessions) -> what the sessions amount to together; None for none."""
    aggregation = operator.aggregation
    match aggregation.kind:
        case "count":
            return lambda key, sessions: sum(value for _, value in sessions) or None
        case "reduce":
            reducer = callable_of(aggregation.aggregators[0], "left_right")

            def reduced(key: Any, sessions: list[tuple[Windowed, Any]]) -> Any:
                found = None
                for _, value in sessions:
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

            def merged(key: Any, sessions: list[tuple[Windowed, Any]]) -> Any:
                if not sessions:
                    return None
                found = initializer()
                for _, value in sessions:
                    found = merger(key, found, value)
                return found

            return merged
