"""The rule of `operators.async_call` over blocks: the calls of a block overlap, and its results keep the order."""

from __future__ import annotations

from typing import Any

from suiro.streams.blocks.block import Block
from suiro.streams.blocks.context import BlockContext
from suiro.streams.calls import Failed
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
        rows: list[int] = []
        found: list[Any] = []
        kind = self._operator.kind
        for row, result in enumerate(results):
            try:
                if isinstance(result, Failed):
                    raise result.error
                match kind:
                    case "map_values":
                        found.append(result)
                    case "map":
                        key, value = result
                        found.append((key, value))
                    case "filter" | "filter_not":
                        if bool(result) is not (kind == "filter"):
                            continue
                    case "flat_map_values":
                        for value in result:
                            rows.append(row)
                            found.append(value)
                        continue
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                context.failed(block, row, error)
                continue
            rows.append(row)
        match kind:
            case "map_values":
                made = block.made(rows, values=found)
            case "map":
                made = block.made(rows, keys=[key for key, _ in found], values=[value for _, value in found])
            case "flat_map_values":
                made = block.made(rows, values=found, several=True)
            case _:
                made = block.made(rows)
        context.forward(made)
