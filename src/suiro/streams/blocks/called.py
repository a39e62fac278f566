"""`operators.called` over blocks: the calls of a block overlap, or a block is a table. The results keep the order."""

from __future__ import annotations

from typing import Any

from suiro.streams.blocks.block import Block
from suiro.streams.blocks.context import BlockContext
from suiro.streams.calls import Failed
from suiro.streams.operators.called import kind_of, outcomes, results_of
from suiro.streams.topology.nodes import AsyncCall, MapBatches


class CalledStep:
    def __init__(self, operator: AsyncCall | MapBatches, context: BlockContext) -> None:
        self._results = results_of(operator, context)
        self._kind = kind_of(operator)
        self._context = context

    def process(self, block: Block, port: int) -> None:
        context, kind = self._context, self._kind
        ends_at_failure = context.task.settings.on_processing_error == "fail"
        results = self._results(block.keys, block.values, block.timestamps, ends_at_failure)
        rows: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        for row, result in enumerate(results):
            try:
                if isinstance(result, Failed):
                    raise result.error
                for key, value in outcomes(kind, block.keys[row], block.values[row], result):
                    rows.append(row)
                    keys.append(key)
                    values.append(value)
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                context.failed(block, row, error)
        context.forward(block.made(rows, keys=keys, values=values, several=kind == "flat_map_values"))
