"""`TableGroupByRule` and `TableAggregateRule` over blocks. The rules are documented there."""

from __future__ import annotations

from suiro.streams.blocks.aggregate import RowAggregateStep
from suiro.streams.blocks.block import Block
from suiro.streams.blocks.context import BlockContext
from suiro.streams.blocks.results import Results
from suiro.streams.errors import TopologyError
from suiro.streams.operators.functions import callable_of
from suiro.streams.operators.table_aggregate import NO_KEY_TO_AGGREGATE, NO_KEY_TO_GROUP, regrouped, update_of
from suiro.streams.topology.nodes import TableAggregate, TableGroupBy


class TableGroupByStep:
    def __init__(self, operator: TableGroupBy, context: BlockContext) -> None:
        self._mapper = callable_of(operator.mapper, "key_value")
        self._context = context

    def process(self, block: Block, port: int) -> None:
        mapper, made = self._mapper, Results()
        not_latest = 0
        for row, (key, change, timestamp) in enumerate(zip(block.keys, block.values, block.timestamps, strict=True)):
            made.row = row
            try:
                if key is None:
                    raise TopologyError(NO_KEY_TO_GROUP)
                if not change.is_latest:
                    not_latest += 1
                    continue
                sides = regrouped(mapper, key, change)
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
                continue
            for new_key, moved in sides:
                made.give(new_key, moved, timestamp)
        self._context.drop("not the latest version", not_latest)
        if made.rows:
            self._context.forward(made.of(block))


class TableAggregateStep(RowAggregateStep):
    def __init__(self, operator: TableAggregate, context: BlockContext) -> None:
        super().__init__(operator.store, [update_of(operator)], context, no_key=NO_KEY_TO_AGGREGATE)
