"""Joins two tables with the same keys: each update of either side produces a result from the current rows.

An update meets the current row of the other side, and its result has the later timestamp of both. A side that may
stand alone (the left one of a left join, both of an outer join) also gives results if the other side has no row. If a
deleted row leaves no result, a tombstone is sent, even if no result was sent before, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from suiro.streams.operators.context import Context
from suiro.streams.operators.functions import callable_of
from suiro.streams.records import Change, Record
from suiro.streams.topology.nodes import TableTableJoin


@dataclass(frozen=True, slots=True)
class _Side:
    """One port of the join. `joiner` takes this side's value first."""

    other_store: Any
    joiner: Callable[[Any, Any], Any]
    stands_alone: bool
    other_stands_alone: bool
    is_versioned: bool

    def join(self, own: Any, other: Any) -> Any:
        if own is None and (other is None or not self.other_stands_alone):
            return None
        return self.joiner(own, other)


class TableTableJoinRule:
    def __init__(self, operator: TableTableJoin, context: Context) -> None:
        joiner = callable_of(operator.joiner, "left_right")
        left, right = context.store(operator.left_store), context.store(operator.right_store)
        left_alone, right_alone = operator.join != "inner", operator.join == "outer"
        self._sides = (
            _Side(right, joiner, left_alone, right_alone, operator.left_versioned),
            _Side(left, lambda one, other: joiner(other, one), right_alone, left_alone, operator.right_versioned),
        )
        self._sends_old = operator.sends_old
        self._store = None if operator.store is None else context.store(operator.store)
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        side = self._sides[port]
        key, change = record.key, record.value
        if key is None:
            self._context.drop("null key")
            return
        if side.is_versioned and not change.is_latest:
            self._context.drop("not the latest version")
            return
        row = side.other_store.table_row(key)
        if row is None:
            if not side.stands_alone or (change.new is None and change.old is None):
                return
            other, timestamp = None, record.timestamp
        else:
            other, timestamp = row[0], max(row[1], record.timestamp)
        old = side.join(change.old, other) if self._sends_old else None
        result = Change(side.join(change.new, other), old)
        if self._store is not None:
            stamp = timestamp
            if change.new is None and row is not None and not self._store.spec.named_by_user:
                # Kafka Streams keeps no rows of such a join but makes them when asked, out of both sides' rows. What is
                # left of this row is the other side's, so a further join must see that one's timestamp.
                stamp = row[1]
            self._store.put(key, result.new, stamp)
        self._forward(Record(key, result, timestamp, record.headers))
