"""Aggregates a re-grouped table: subtracts the old row, then adds the new one.

`TableGroupByRule` sends both sides of a change; on their way through a repartition they are one message if both sides
have the same new key, else two, the old one first. Results are stamped with the later one of record and row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suiro.streams.errors import TopologyError
from suiro.streams.operators.aggregate import RowAggregateRule
from suiro.streams.operators.context import Context
from suiro.streams.operators.functions import callable_of, pair_of
from suiro.streams.operators.keys import is_same
from suiro.streams.records import Change, Record
from suiro.streams.topology.nodes import TableAggregate, TableGroupBy

NO_KEY_TO_GROUP = "a table's row without a key cannot be grouped"
NO_KEY_TO_AGGREGATE = "a table's row without a key cannot be aggregated"


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
            raise TopologyError(NO_KEY_TO_GROUP)
        if not change.is_latest:
            self._context.drop("not the latest version")
            return
        for key, moved in regrouped(self._mapper, record.key, change):
            self._forward(Record(key, moved, record.timestamp, record.headers))


def regrouped(mapper: Callable[[Any, Any], Any], key: Any, change: Change) -> list[tuple[Any, Change]]:
    """The changes under new keys: one if both sides have the same, else the old side's and then the new side's."""
    new_key, new = _side_of(mapper, key, change.new)
    old_key, old = _side_of(mapper, key, change.old)
    if old is not None and new is not None and is_same(old_key, new_key):
        return [(new_key, Change(new, old))]
    found = [] if old is None else [(old_key, Change(None, old))]
    if new is not None:
        found.append((new_key, Change(new)))
    return found


def _side_of(mapper: Callable[[Any, Any], Any], key: Any, value: Any) -> tuple[Any, Any]:
    """The new key and value of one side of a change; None, None: the side is skipped."""
    if value is None:
        return None, None
    made = mapper(key, value)
    pair = (None, None) if made is None else pair_of(made, "the mapper of group_by gave")
    return (None, None) if pair[0] is None or pair[1] is None else pair


class TableAggregateRule(RowAggregateRule):
    def __init__(self, operator: TableAggregate, context: Context) -> None:
        super().__init__(operator.store, [update_of(operator)], context, no_key=NO_KEY_TO_AGGREGATE)


def update_of(operator: TableAggregate) -> Callable[[Any, Change, Any], Any]:
    """(key, change, aggregate or None) -> the next aggregate: without the old row, then with the new one."""
    take_out, put_in = _sides_of(operator)

    def update(key: Any, change: Change, aggregate: Any) -> Any:
        # Without an aggregate there is nothing to take out of (KAFKA-5315); the subtractor has made it None before.
        if change.old is not None and aggregate is not None:
            aggregate = take_out(key, change.old, aggregate)
        return aggregate if change.new is None else put_in(key, change.new, aggregate)

    return update


def _sides_of(
    operator: TableAggregate,
) -> tuple[Callable[[Any, Any, Any], Any], Callable[[Any, Any, Any], Any]]:
    """(key, row, aggregate) -> the aggregate without the row, and with it; there it may be None."""
    if operator.kind == "count":
        return lambda key, value, count: count - 1, lambda key, value, count: (count or 0) + 1
    assert operator.adder is not None
    assert operator.subtractor is not None
    if operator.kind == "reduce":
        add, subtract = (callable_of(each, "left_right") for each in (operator.adder, operator.subtractor))
        return (
            lambda key, value, aggregate: subtract(aggregate, value),
            lambda key, value, aggregate: value if aggregate is None else add(aggregate, value),
        )
    adder, subtractor = (callable_of(each, "key_value_aggregate") for each in (operator.adder, operator.subtractor))
    initializer = operator.initializer
    assert initializer is not None
    return subtractor, lambda key, value, aggregate: adder(
        key, value, initializer() if aggregate is None else aggregate
    )
