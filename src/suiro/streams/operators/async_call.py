"""Calls an `async def` function for each record, and forwards the result as the plain operator would."""

from __future__ import annotations

from suiro.streams.calls import Failed
from suiro.streams.operators.context import Context
from suiro.streams.records import Record
from suiro.streams.topology.nodes import AsyncCall


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
        forward = self._context.forward
        match self._operator.kind:
            case "map_values":
                forward(record.with_value(result))
            case "map":
                key, value = result
                forward(Record(key, value, record.timestamp, record.headers))
            case "filter" | "filter_not" as kind:
                if bool(result) is (kind == "filter"):
                    forward(record)
            case "flat_map_values":
                for value in result:
                    forward(record.with_value(value))
            case "peek":
                forward(record)
