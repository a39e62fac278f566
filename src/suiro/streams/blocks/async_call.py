"""The rule of `operators.async_call` over blocks: the calls of a block overlap, and its results keep the order."""

from __future__ import annotations

from typing import Any

from suiro.streams.blocks.block import Block
from suiro.streams.blocks.context import BlockContext
from suiro.streams.calls import Failed
from suiro.streams.operators.async_call import outcomes
from suiro.streams.topology.nodes import AsyncCall


class AsyncCallStep:
    def __init__(self, operator: AsyncCall, context: BlockContext) -> None:
        self._operator = operator
        self._context = context

    def process(self, block: Block, port: int) -> None:
        context = self._context
        results = context.task.caller.results(
            context.node.name,
            self._operator,
            block.keys,
            block.values,
            ends_at_failure=context.task.settings.on_processing_error == "fail",
        )
        kind = self._operator.kind
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
