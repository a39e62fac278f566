"""Stateless operators. Null keys and values are passed to the user's functions."""

from __future__ import annotations

from typing import Any, ClassVar

from suiro.streams.operators.context import Context
from suiro.streams.operators.functions import FunctionKind, callable_of, pair_of, pairs_of, values_of
from suiro.streams.records import Record
from suiro.streams.topology import nodes


class PassOn:
    def __init__(self, operator: object, context: Context) -> None:
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        self._forward(record)


SourceRule = MergeRule = PassOn


class FilterRule:
    def __init__(self, operator: nodes.Filter, context: Context) -> None:
        self._predicate = callable_of(operator.predicate, "key_value")
        self._wanted = not operator.negated
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        if bool(self._predicate(record.key, record.value)) is self._wanted:
            self._forward(record)


class MapRule:
    takes: ClassVar[FunctionKind] = "key_value"

    def __init__(self, operator: Any, context: Context) -> None:
        self._mapper = callable_of(operator.mapper, self.takes)
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        key, value = pair_of(self._mapper(record.key, record.value))
        self._forward(Record(key, value, record.timestamp, record.headers))


class MapValuesRule(MapRule):
    takes = "value"

    def process(self, record: Record, port: int) -> None:
        self._forward(record.with_value(self._mapper(record.value)))


class FlatMapRule(MapRule):
    def process(self, record: Record, port: int) -> None:
        for key, value in pairs_of(self._mapper(record.key, record.value)):
            self._forward(Record(key, value, record.timestamp, record.headers))


class FlatMapValuesRule(MapRule):
    takes = "value"

    def process(self, record: Record, port: int) -> None:
        for value in values_of(self._mapper(record.value)):
            self._forward(record.with_value(value))


class SelectKeyRule(MapRule):
    def process(self, record: Record, port: int) -> None:
        self._forward(record.with_key(self._mapper(record.key, record.value)))


class PeekRule:
    def __init__(self, operator: nodes.Peek, context: Context) -> None:
        self._action = operator.action
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        self._action(record.key, record.value)
        self._forward(record)


class BranchRule:
    """Drops a record for which no predicate holds and does not count it, as Kafka Streams does."""

    def __init__(self, operator: nodes.Branch, context: Context) -> None:
        self._branches = [
            (None if predicate is None else callable_of(predicate, "key_value"), child)
            for predicate, child in operator.predicates
        ]
        self._context = context

    def process(self, record: Record, port: int) -> None:
        for predicate, child in self._branches:
            if predicate is None or predicate(record.key, record.value):
                self._context.children[child](record)
                return
