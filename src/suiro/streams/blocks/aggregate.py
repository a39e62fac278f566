"""`StreamAggregateRule` and `TimeWindowAggregateRule` over blocks. The rules are documented there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from suiro.streams.blocks.results import Results
from suiro.streams.errors import TopologyError
from suiro.streams.operators.aggregate import Update, update_of
from suiro.streams.operators.row_expiry import RowExpiry
from suiro.streams.records import Change, Windowed
from suiro.streams.times import UNKNOWN
from suiro.streams.topology.nodes import StreamAggregate, TimeWindowAggregate
from suiro.streams.windows import EmitStrategy

if TYPE_CHECKING:
    from suiro.streams.blocks.block import Block
    from suiro.streams.blocks.context import BlockContext
    from suiro.streams.serdes.block_forms import Failed


class RowAggregateStep:
    """One row for each key. `no_key`: why a record without a key fails; without it, the record is dropped."""

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
        ports = max(1, len(operator.aggregation.aggregators))
        updates = [update_of(operator.aggregation, port) for port in range(ports)]
        super().__init__(operator.store, updates, context)


class TimeWindowAggregateStep:
    def __init__(self, operator: TimeWindowAggregate, context: BlockContext) -> None:
        ports = max(1, len(operator.aggregation.aggregators))
        self._updates = [update_of(operator.aggregation, port) for port in range(ports)]
        self._windows = operator.windows
        self._emits_final = operator.emit is EmitStrategy.ON_WINDOW_CLOSE
        self._gives_several = self._emits_final or operator.windows.advance_ms != operator.windows.size_ms
        self._store = context.store(operator.store)
        context.time.closes_after(operator.windows.size_ms + operator.windows.grace_ms)
        retention = max(self._store.spec.retention_ms or 0, operator.windows.retention_ms)
        self._expiry = RowExpiry(context, self._store, retention - 1)
        self._needs_old = context.needs_old
        self._context = context

    def process(self, block: Block, port: int) -> None:
        made = Results()
        update, time = self._updates[port], self._context.time
        raws, failed = self._store.keys_of(block.keys)
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
            made.row = row
            try:
                self._put(made, row, raw, failed, update, key, value, timestamp)
                if time.current > time.closed:
                    self._close(made)
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
        self._context.drop("null key", null_keys)
        if made.rows:
            self._context.forward(made.of(block, several=self._gives_several))

    def _put(
        self,
        made: Results,
        row: int,
        raw: bytes | None,
        failed: Failed,
        update: Update,
        key: Any,
        value: Any,
        timestamp: int,
    ) -> None:
        windows, store, needs_old = self._windows, self._store, self._needs_old
        time = max(self._context.time.observe(timestamp), self._context.time.closed)
        for start in windows.starts_for(timestamp):
            end = start + windows.size_ms
            if windows.is_closed(end, time):
                self._context.drop("late")
                continue
            if raw is None:
                raise failed[row]
            found = store.row_at(raw, start)
            old, latest = None, timestamp
            if found is not None:
                old, latest = found[0], max(found[1], timestamp)
            new = update(key, value, old)
            if new is old and found is not None and needs_old:
                old = store.row_at(raw, start)[0]  # the aggregator may have changed it in place
            store.put_at(raw, new, start, latest)
            if not self._emits_final:
                made.give(Windowed(key, start, end), Change(new, old if needs_old else None), latest)

    def end_of_batch(self) -> None:
        made = Results()
        if self._context.time.current > self._context.time.closed:
            self._close(made)
        if made.rows:
            self._context.forward(made.at_the_end())

    def _close(self, made: Results) -> None:
        """Gives the results of the windows that closed since the last time, and lets go of old rows."""
        time = self._context.time
        before, now = time.closed, time.current
        time.closed = now
        if self._emits_final:
            # Closed are the windows that start this long before; see `TimeWindows.is_closed`.
            size = self._windows.size_ms
            length = size + self._windows.grace_ms
            if now >= length:
                first = max(0, before - length + 1)
                for key, start, value, timestamp in self._store.rows_between(first, now - length):
                    made.give(Windowed(key, start, start + size), Change(value), timestamp)
        self._expiry.time_is(now)
