"""`StreamTableJoinRule` over blocks. The rule is documented there. Versioned tables have no block form."""

from __future__ import annotations

from typing import Any

from suiro.streams.blocks.block import Block, together
from suiro.streams.blocks.context import BlockContext
from suiro.streams.operators.functions import callable_of
from suiro.streams.topology.nodes import StreamTableJoin


class StreamTableJoinStep:
    def __init__(self, operator: StreamTableJoin, context: BlockContext) -> None:
        self._joiner = callable_of(operator.joiner, "left_right")
        self._is_left = operator.join == "left"
        self._table = context.table(operator.table_store)
        self._context = context

    def process_ports(self, deliveries: list[tuple[Block, int]]) -> None:
        block = together([block for block, port in deliveries if port == 0])
        if block is None:
            return
        joiner, is_left = self._joiner, self._is_left
        find = self._table.finder(block, together([block for block, port in deliveries if port == 1]))
        raws, failed = self._table.keys_of(block.keys)
        rows: list[int] = []
        values: list[Any] = []
        null_keys = null_values = 0
        for row, (key, value, raw) in enumerate(zip(block.keys, block.values, raws, strict=True)):
            if value is None:
                null_values += 1
                continue
            if key is None and not is_left:
                null_keys += 1
                continue
            try:
                found = None
                if key is not None:
                    if raw is None:
                        raise failed[row]
                    found = find(raw, row)
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
