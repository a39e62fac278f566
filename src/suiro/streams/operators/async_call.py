"""Calls an `async def` function for each record, and forwards the result as the plain operator would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from suiro.streams.calls import Failed
from suiro.streams.operators.context import Context
from suiro.streams.records import Record
from suiro.streams.topology.nodes import AsyncCall, CallKind


class AsyncCallRule:
    """One call at a time: the record in hand is at the end of every path before the next one comes."""

    def __init__(self, operator: AsyncCall, context: Context) -> None:
        self._operator = operator
        self._context = context

    def process(self, record: Record, port: int) -> None:
        (result,) = self._context.task.caller.results(
            self._context.node.name, self._operator, [record.key], [record.value], ends_at_failure=True
        )
        if isinstance(result, Failed):
            raise result.error
        for key, value in outcomes(self._operator.kind, record.key, record.value, result):
            self._context.forward(Record(key, value, record.timestamp, record.headers))


def outcomes(kind: CallKind, key: Any, value: Any, result: Any) -> Iterator[tuple[Any, Any]]:
    """The keys and values that go on for a record, as the plain operator would give them for this result."""
    match kind:
        case "map_values":
            yield key, result
        case "map":
            new_key, new_value = result
            yield new_key, new_value
        case "filter" | "filter_not":
            if bool(result) is (kind == "filter"):
                yield key, value
        case "flat_map_values":
            for each in result:
                yield key, each
        case "peek":
            yield key, value
