"""`RowAggregateRule` and `StreamAggregateRule` over blocks. The rules are documented there."""

from __future__ import annotations

from collections.abc import Sequence

from suiro.streams.blocks.block import Block
from suiro.streams.blocks.context import BlockContext
from suiro.streams.errors import TopologyError
from suiro.streams.operators.aggregate import Update, updates_of
from suiro.streams.records import Change
from suiro.streams.topology.nodes import StreamAggregate


class RowAggregateStep:
    def __init__(
        self, store: str, updates: Sequence[Update], context: BlockContext, *, no_key: str | None = None
    ) -> None:
        self._updates = updates
        self._store = context.store(store)
        self._needs_old = context.needs_old
        self._context = context
        self._no_key = no_key

    def process(self, block: Block, port: int) -> None:
        update, needs_old = self._updates[port], self._needs_old
        row_at, put_at = self._store.row_at, self._store.put_at
        raws, failed = self._store.keys_of(block.keys)
        rows: list[int] = []
        changes: list[Change] = []
        timestamps: list[int] = []
        null_keys = null_values = 0
        for row, (key, value, timestamp, raw) in enumerate(
            zip(block.keys, block.values, block.timestamps, raws, strict=True)
        ):
            if key is None:
                if self._no_key is None:
                    null_keys += 1
                else:
                    self._context.failed(block, row, TopologyError(self._no_key))
                continue
            if value is None:
                null_values += 1
                continue
            try:
                if raw is None:
                    raise failed[row]
                found = row_at(raw)
                old = None
                if found is not None:
                    old = found[0]
                    timestamp = max(found[1], timestamp)
                new = update(key, value, old)
                if new is old and old is not None and needs_old:
                    old = row_at(raw)[0]  # the aggregator may have changed it in place
                put_at(raw, new, timestamp)
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
                continue
            rows.append(row)
            changes.append(Change(new, old if needs_old else None))
            timestamps.append(timestamp)
        self._context.drop("null key", null_keys)
        self._context.drop("null value", null_values)
        self._context.forward(block.made(rows, values=changes, timestamps=timestamps))


class StreamAggregateStep(RowAggregateStep):
    def __init__(self, operator: StreamAggregate, context: BlockContext) -> None:
        super().__init__(operator.store, updates_of(operator.aggregation), context)
