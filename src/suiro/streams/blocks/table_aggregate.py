"""`TableGroupByRule` and `TableAggregateRule` over blocks. The rules are documented there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.streams.blocks.results import Results
from suiro.streams.errors import TopologyError
from suiro.streams.operators.functions import callable_of
from suiro.streams.operators.table_aggregate import NO_KEY_TO_AGGREGATE, NO_KEY_TO_GROUP, side_of, update_of
from suiro.streams.records import Change
from suiro.streams.topology.nodes import TableAggregate, TableGroupBy

if TYPE_CHECKING:
    from suiro.streams.blocks.block import Block
    from suiro.streams.blocks.context import BlockContext

__all__ = ["TableAggregateStep", "TableGroupByStep"]


class TableGroupByStep:
    def __init__(self, operator: TableGroupBy, context: BlockContext) -> None:
        self._mapper = callable_of(operator.mapper, "key_value")
        self._context = context

    def process(self, block: Block, port: int) -> None:
        mapper, made = self._mapper, Results()
        not_latest = 0
        for row, (key, change, timestamp) in enumerate(
            zip(block.keys, block.values, block.timestamps, strict=True)
        ):
            made.row = row
            try:
                if key is None:
                    raise TopologyError(NO_KEY_TO_GROUP)
                if not change.is_latest:
                    not_latest += 1
                    continue
                new_key, new = side_of(mapper, key, change.new)
                old_key, old = side_of(mapper, key, change.old)
                is_one = old is not None and new is not None and old_key == new_key
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
                continue
            if is_one:
                made.give(new_key, Change(new, old), timestamp)
                continue
            if old is not None:
                made.give(old_key, Change(None, old), timestamp)
            if new is not None:
                made.give(new_key, Change(new, None), timestamp)
        self._context.drop("not the latest version", not_latest)
        if made.rows:
            self._context.forward(made.of(block))


class TableAggregateStep:
    def __init__(self, operator: TableAggregate, context: BlockContext) -> None:
        self._update = update_of(operator)
        self._store = context.store(operator.store)
        self._needs_old = context.needs_old
        self._context = context

    def process(self, block: Block, port: int) -> None:
        update, needs_old = self._update, self._needs_old
        row_at, put_at = self._store.row_at, self._store.put_at
        raws, failed = self._store.keys_of(block.keys)
        rows: list[int] = []
        changes: list[Change] = []
        timestamps: list[int] = []
        for row, (key, change, timestamp, raw) in enumerate(
            zip(block.keys, block.values, block.timestamps, raws, strict=True)
        ):
            try:
                if key is None:
                    raise TopologyError(NO_KEY_TO_AGGREGATE)
                if raw is None:
                    raise failed[row]
                found = row_at(raw)
                old = None
                if found is not None:
                    old = found[0]
                    timestamp = max(found[1], timestamp)
                new: Any = update(key, change, old)
                if new is old and old is not None and needs_old:
                    old = row_at(raw)[0]  # adder or subtractor may have changed it in place
                put_at(raw, new, timestamp)
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
                continue
            rows.append(row)
            changes.append(Change(new, old if needs_old else None))
            timestamps.append(timestamp)
        self._context.forward(block.made(rows, values=changes, timestamps=timestamps))
