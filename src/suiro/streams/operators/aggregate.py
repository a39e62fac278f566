"""`count`, `reduce`, `aggregate` of a grouped stream, without windows; also of co-groups, one aggregator for each port.

Records with a null key or a null value are dropped. A result's timestamp is the later one of the record's and the
row's. An aggregator that gives None deletes the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from suiro.streams.errors import TopologyError
from suiro.streams.operators.context import Context
from suiro.streams.operators.functions import callable_of
from suiro.streams.records import Change, Record
from suiro.streams.topology.nodes import Aggregation, AggregationKind, Function, StreamAggregate

Update = Callable[[Any, Any, Any], Any]


def updates_of(aggregation: Aggregation) -> list[Update]:
    """The update of each port."""
    aggregators = aggregation.aggregators or (None,)
    return [update_of(aggregation.kind, aggregator, aggregation.initializer) for aggregator in aggregators]


def update_of(kind: AggregationKind, aggregator: Function | None, initializer: Callable[[], Any] | None) -> Update:
    """(key, value, aggregate) -> the next aggregate. An aggregate of None stands for the initial one."""
    if aggregator is None:
        return lambda key, value, aggregate: (aggregate or 0) + 1
    if kind == "reduce":
        reducer = callable_of(aggregator, "left_right")
        return lambda key, value, aggregate: value if aggregate is None else reducer(aggregate, value)
    function = callable_of(aggregator, "key_value_aggregate")
    assert initializer is not None
    return lambda key, value, aggregate: function(key, value, initializer() if aggregate is None else aggregate)


class RowAggregateRule:
    """One row for each key. `no_key`: why a record without a key fails; None: it is dropped."""

    def __init__(self, store: str, updates: Sequence[Update], context: Context, *, no_key: str | None = None) -> None:
        self._updates = updates
        self._store = context.store(store)
        self._no_key = no_key
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        key, value = record.key, record.value
        if key is None and self._no_key is not None:
            raise TopologyError(self._no_key)
        if key is None or value is None:
            self._context.drop("null key" if key is None else "null value")
            return
        found = self._store.get_with_timestamp(key)
        old, timestamp = (None, record.timestamp) if found is None else (found[0], max(found[1], record.timestamp))
        new = self._updates[port](key, value, old)
        if new is old and old is not None:
            old = self._store.get(key)  # the aggregator may have changed it in place
        self._store.put(key, new, timestamp)
        self._forward(Record(key, Change(new, old), timestamp, record.headers))


class StreamAggregateRule(RowAggregateRule):
    def __init__(self, operator: StreamAggregate, context: Context) -> None:
        super().__init__(operator.store, updates_of(operator.aggregation), context)
