"""The rule of `operators.map_batches` over blocks: a block is a table."""

from __future__ import annotations

from typing import Any

from suiro.streams.batches import BatchFunction
from suiro.streams.blocks.block import Block
from suiro.streams.blocks.context import BlockContext
from suiro.streams.calls import Failed
from suiro.streams.topology.nodes import MapBatches


class MapBatchesStep:
    def __init__(self, operator: MapBatches, context: BlockContext) -> None:
        self._function = BatchFunction(operator)
        self._context = context

    def process(self, block: Block, port: int) -> None:
        context = self._context
        results = self._function.results(
            block.keys,
            block.values,
            block.timestamps,
            ends_at_failure=context.task.settings.on_processing_error == "fail",
        )
        rows: list[int] = []
        values: list[Any] = []
        for row, result in enumerate(results):
            if isinstance(result, Failed):
                context.failed(block, row, result.error)
            else:
                rows.append(row)
                values.append(result)
        context.forward(block.made(rows, values=values))
