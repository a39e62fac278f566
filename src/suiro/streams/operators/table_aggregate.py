"""Aggregates a re-grouped table: subtracts the old row, then adds the new one.

`TableGroupByRule` sends both sides of a change; on their way through a repartition they are one message if both sides
have the same new key, else two, the old one first. Results are stamped with the later one of record and row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suiro.streams.errors import TopologyError
from suiro.streams.operators import aggregate
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


class TableAggregateRule(aggregate.RowAggregateRule):
    def __init__(self, operator: TableAggregate, context: Context) -> None:
        super().__init__(operator.store, [update_of(operator)], context, no_key=NO_KEY_TO_AGGREGATE)


def update_of(operator: TableAggregate) -> Callable[[Any, Change, Any], Any]:
    """(key, change, aggregate or None) -> the next aggregate: without the old row, then with the new one."""
    put_in = aggregate.update_of(operator.kind, operator.adder, operator.initializer)
    take_out: aggregate.Update
    if operator.subtractor is None:
        take_out = lambda key, value, count: count - 1  # noqa: E731
    elif operator.kind == "reduce":
        subtract = callable_of(operator.subtractor, "left_right")
        take_out = lambda key, value, total: subtract(total, value)  # noqa: E731
    else:
        take_out = callable_of(operator.subtractor, "key_value_aggregate")

    def update(key: Any, change: Change, total: Any) -> Any:
        # Without an aggregate there is nothing to take out of (KAFKA-5315); the subtractor has made it None before.
        if change.old is not None and total is not None:
            total = take_out(key, change.old, total)
        return total if change.new is None else put_in(key, change.new, total)

    return update
