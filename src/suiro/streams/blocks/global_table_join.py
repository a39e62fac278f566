"""`StreamGlobalTableJoinRule` over blocks. The rule is documented there."""

from __future__ import annotations

from typing import Any

from suiro.streams.blocks.block import Block
from suiro.streams.blocks.context import BlockContext
from suiro.streams.operators.functions import callable_of
from suiro.streams.topology.nodes import StreamGlobalTableJoin


class StreamGlobalTableJoinStep:
    def __init__(self, operator: StreamGlobalTableJoin, context: BlockContext) -> None:
        self._mapper = callable_of(operator.key_mapper, "key_value")
        self._joiner = callable_of(operator.joiner, "left_right")
        self._is_left = operator.join == "left"
        self._row = context.store(operator.table_store).get_with_timestamp
        self._context = context

    def process(self, block: Block, port: int) -> None:
        mapper, joiner, row_of, is_left = self._mapper, self._joiner, self._row, self._is_left
        rows: list[int] = []
        values: list[Any] = []
        null_keys = null_values = 0
        for row, (key, value) in enumerate(zip(block.keys, block.values, strict=True)):
            if value is None:
                null_values += 1
                continue
            try:
                place = mapper(key, value)
                if place is None and not is_left:
                    null_keys += 1
                    continue
                found = None if place is None else row_of(place)
                if found is None and not is_left:
                    continue
                values.append(joiner(value, None if found is None else found[0]))
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
                continue
            rows.append(row)
        self._context.drop("null key", null_keys)
        self._context.drop("null value", null_values)
        self._context.forward(block.made(rows, values=values))
