"""Aggregates a re-grouped table: subtracts the old row, then adds the new one.

`TableGroupByRule` sends both sides of a change; on their way through a repartition they are one message if both sides
have the same new key, else two, the old one first. Results are stamped with the later one of record and row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.streams.errors import TopologyError
from suiro.streams.operators.functions import callable_of
from suiro.streams.records import Change, Record
from suiro.streams.topology.nodes import TableAggregate, TableGroupBy

if TYPE_CHECKING:
    from suiro.streams.operators.context import Context

__all__ = ["TableAggregateRule", "TableGroupByRule"]


class TableGroupByRule:
    """A side without a pair, or with a null in it, is skipped.

    Updates that are not the latest are left out (KIP-914).
    """

    def __init__(self, operator: TableGroupBy, context: Context) -> None:
        self._mapper = callable_of(operator.mapper, "key_value")
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        change: Change = record.value
        if record.key is None:
            raise TopologyError("a table's row without a key cannot be grouped")
        if not change.is_latest:
            self._context.drop("not the latest version")
            return
        new_key, new = self._side(record.key, change.new)
        old_key, old = self._side(record.key, change.old)
        if old is not None and new is not None and old_key == new_key:
            self._forward(Record(new_key, Change(new, old), record.timestamp, record.headers))
            return
        if old is not None:
            self._forward(Record(old_key, Change(None, old), record.timestamp, record.headers))
        if new is not None:
            self._forward(Record(new_key, Change(new, None), record.timestamp, record.headers))

    def _side(self, key: Any, value: Any) -> tuple[Any, Any]:
        if value is None:
            return None, None
        pair = self._mapper(key, value)
        if pair is None or pair[0] is None or pair[1] is None:
            return None, None
        return pair[0], pair[1]


class TableAggregateRule:
    def __init__(self, operator: TableAggregate, context: Context) -> None:
        self._kind = operator.kind
        self._initializer = operator.initializer
        kind: Any = "left_right" if operator.kind == "reduce" else "key_value_aggregate"
        self._adder: Any = None if operator.adder is None else callable_of(operator.adder, kind)
        self._subtractor: Any = (
            None if operator.subtractor is None else callable_of(operator.subtractor, kind)
        )
        self._store = context.store(operator.store)
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        key, change = record.key, record.value
        if key is None:
            raise TopologyError("a table's row without a key cannot be aggregated")
        found = self._store.get_with_timestamp(key)
        old, timestamp = (
            (None, record.timestamp) if found is None else (found[0], max(found[1], record.timestamp))
        )
        aggregate = old
        # Without an aggregate there is nothing to take out of (KAFKA-5315); the subtractor has made it None before.
        if change.old is not None and old is not None:
            aggregate = self._taken_out(key, change.old, old)
        if change.new is not None:
            aggregate = self._put_in(key, change.new, aggregate)
        if aggregate is old and old is not None:
            old = self._store.get(key)  # adder or subtractor may have changed it in place
        self._store.put(key, aggregate, timestamp)
        self._forward(Record(key, Change(aggregate, old), timestamp, record.headers))

    def _taken_out(self, key: Any, value: Any, aggregate: Any) -> Any:
        match self._kind:
            case "count":
                return aggregate - 1
            case "reduce":
                return self._subtractor(aggregate, value)
            case "aggregate":
                return self._subtractor(key, value, aggregate)

    def _put_in(self, key: Any, value: Any, aggregate: Any) -> Any:
        match self._kind:
            case "count":
                return (aggregate or 0) + 1
            case "reduce":
                return value if aggregate is None else self._adder(aggregate, value)
            case "aggregate":
                return self._adder(key, value, self._started(aggregate))

    def _started(self, aggregate: Any) -> Any:
        assert self._initializer is not None
        return self._initializer() if aggregate is None else aggregate
