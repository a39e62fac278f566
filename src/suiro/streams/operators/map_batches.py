"""Calls the function of `map_batches` with a table of one record."""

from __future__ import annotations

from suiro.streams.batches import BatchFunction
from suiro.streams.calls import Failed
from suiro.streams.operators.context import Context
from suiro.streams.records import Record
from suiro.streams.topology.nodes import MapBatches


class MapBatchesRule:
    def __init__(self, operator: MapBatches, context: Context) -> None:
        self._function = BatchFunction(operator)
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        (result,) = self._function.results([record.key], [record.value], [record.timestamp])
        if isinstance(result, Failed):
            raise result.error
        self._forward(record.with_value(result))
