"""Operators whose function takes many records at a time: `async def` functions, and functions of batches.

The results are forwarded as the plain operator would. Here there is one record at a time: it is at the end of every
path before the next one comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from suiro.streams.batches import batch_results
from suiro.streams.calls import Failed
from suiro.streams.operators.context import Context
from suiro.streams.operators.functions import pair_of, values_of
from suiro.streams.records import Record
from suiro.streams.topology.nodes import AsyncCall, CallKind, MapBatches

Results = Callable[[Sequence[Any], Sequence[Any], Sequence[int], bool], Sequence[Any]]
"""(keys, values, timestamps, whether it ends at a failure) -> the result of each record, or `Failed`."""


def results_of(operator: AsyncCall | MapBatches, context: Any) -> Results:
    """`context`: that of a rule or of a step over blocks."""
    if isinstance(operator, MapBatches):
        return lambda keys, values, times, ends: batch_results(operator, keys, values, times, ends_at_failure=ends)
    # The caller is asked for with the first record: a task that gets none has none.
    return lambda keys, values, timestamps, ends: context.task.caller.results(
        context.node.name, operator, keys, values, ends_at_failure=ends
    )


def kind_of(operator: AsyncCall | MapBatches) -> CallKind:
    return operator.kind if isinstance(operator, AsyncCall) else "map_values"


class CalledRule:
    def __init__(self, operator: AsyncCall | MapBatches, context: Context) -> None:
        self._results = results_of(operator, context)
        self._kind = kind_of(operator)
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        (result,) = self._results([record.key], [record.value], [record.timestamp], True)
        if isinstance(result, Failed):
            raise result.error
        for key, value in outcomes(self._kind, record.key, record.value, result):
            self._forward(Record(key, value, record.timestamp, record.headers))


AsyncCallRule = MapBatchesRule = CalledRule


def outcomes(kind: CallKind, key: Any, value: Any, result: Any) -> Iterator[tuple[Any, Any]]:
    """The keys and values that go on for a record, as the plain operator would give them for this result."""
    match kind:
        case "map_values":
            yield key, result
        case "map":
            yield pair_of(result, "the mapper of map_async gave")
        case "filter" | "filter_not":
            if bool(result) is (kind == "filter"):
                yield key, value
        case "flat_map_values":
            for each in values_of(result, "flat_map_values_async"):
                yield key, each
        case "peek":
            yield key, value
