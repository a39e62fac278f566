"""The rules of `operators.aggregate`, `windowed_aggregate` and `table_aggregate` over blocks. The rules are documented
there. The windows are those of `operators.windowing` in both."""

from __future__ import annotations

from collections.abc import Sequence

from suiro.streams.blocks.block import Block, Results
from suiro.streams.blocks.context import BlockContext
from suiro.streams.errors import TopologyError
from suiro.streams.operators.aggregate import Update, updates_of
from suiro.streams.operators.functions import callable_of
from suiro.streams.operators.table_aggregate import NO_KEY_TO_AGGREGATE, NO_KEY_TO_GROUP, regrouped, update_of
from suiro.streams.operators.windowed_aggregate import windowing_of
from suiro.streams.records import Change
from suiro.streams.times import UNKNOWN
from suiro.streams.topology.nodes import (
    SessionAggregate,
    StreamAggregate,
    TableAggregate,
    TableGroupBy,
    TimeWindowAggregate,
)


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


class WindowedAggregateStep:
    def __init__(self, operator: TimeWindowAggregate | SessionAggregate, context: BlockContext) -> None:
        self._windowing = windowing_of(operator, context, reads_old=context.needs_old)
        self._context = context

    def process(self, block: Block, port: int) -> None:
        time, results = self._context.time, Results()
        take, close, give = self._windowing.take, self._windowing.close, results.give
        raws, _ = self._windowing.keys_of(block.keys)
        carried = block.carried
        if carried is None:
            time.carried = UNKNOWN
        null_keys = 0
        for row, (key, value, timestamp, raw) in enumerate(
            zip(block.keys, block.values, block.timestamps, raws, strict=True)
        ):
            if carried is not None:
                time.carried = carried[row]
            if key is None:
                null_keys += 1
                continue
            results.row = row
            try:
                take(key, raw, value, timestamp, port, give)
                if time.current > time.closed:
                    close(give)
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
        self._context.drop("null key", null_keys)
        self._context.forward(results.of(block, several=self._windowing.gives_several))

    def end_of_batch(self) -> None:
        results = Results()
        self._windowing.close(results.give)
        if results.keys:
            self._context.forward(results.at_the_end())


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
