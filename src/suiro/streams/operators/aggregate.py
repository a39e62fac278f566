"""`count`, `reduce`, `aggregate` of a grouped stream, without windows; also of co-groups, one aggregator for each port.

Records with a null key or a null value are dropped. A result's timestamp is the later one of the record's and the
row's. An aggregator that gives None deletes the row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from suiro.streams.operators.functions import callable_of
from suiro.streams.records import Change, Record
from suiro.streams.topology.nodes import Aggregation, StreamAggregate

if TYPE_CHECKING:
    from suiro.streams.operators.context import Context

Update = Callable[[Any, Any, Any], Any]


def update_of(aggregation: Aggregation, port: int) -> Update:
    """(key, value, aggregate or None) -> the next aggregate, with what an initializer would have given for None."""
    match aggregation.kind:
        case "count":
            return lambda key, value, aggregate: (aggregate or 0) + 1
        case "reduce":
            reducer = callable_of(aggregation.aggregators[port], "left_right")
            return lambda key, value, aggregate: value if aggregate is None else reducer(aggregate, value)
        case "aggregate":
            aggregator = callable_of(aggregation.aggregators[port], "key_value_aggregate")
            initializer = aggregation.initializer
            assert initializer is not None
            return lambda key, value, aggregate: aggregator(
                key, value, initializer() if aggregate is None else aggregate
            )


class StreamAggregateRule:
    def __init__(self, operator: StreamAggregate, context: Context) -> None:
        ports = max(1, len(operator.aggregation.aggregators))
        self._updates = [update_of(operator.aggregation, port) for port in range(ports)]
        self._store = context.store(operator.store)
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        key, value = record.key, record.value
        if key is None or value is None:
            self._context.drop("null key" if key is None else "null value")
            return
        found = self._store.get_with_timestamp(key)
        old, timestamp = (
            (None, record.timestamp) if found is None else (found[0], max(found[1], record.timestamp))
        )
        new = self._updates[port](key, value, old)
        if new is old and old is not None:
            old = self._store.get(key)  # the aggregator may have changed it in place
        self._store.put(key, new, timestamp)
        self._forward(Record(key, Change(new, old), timestamp, record.headers))
