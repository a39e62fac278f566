"""The rules of `operators.stream_table_join` and `stream_stream_join` over blocks. They are documented there. Versioned
tables have no block form.

A table's operator writes all rows of a block before a join in the same task gets any of them, and a record must find
the row as it was when the record came. So the store keeps what was replaced (`KeyValueStore.replaced`), and the join
gets the table's changes in the order of the puts, one for each. A record that came before the n-th change of its key
finds the row that this change replaced.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from suiro.streams.blocks.block import Block, Results, merged, together
from suiro.streams.blocks.context import BlockContext
from suiro.streams.blocks.order import ranks
from suiro.streams.operators.functions import callable_of
from suiro.streams.operators.stream_stream_join import StreamJoin
from suiro.streams.records import Headers, Record
from suiro.streams.stores.decoded import Snapshot
from suiro.streams.stores.key_value import KeyValueStore
from suiro.streams.times import UNKNOWN
from suiro.streams.topology.nodes import StreamGlobalTableJoin, StreamStreamJoin, StreamTableJoin

Find = Callable[[bytes, int], tuple[Any, int] | None]
"""(key bytes, row of the block) -> the table's row as it was at that row of the block: value and timestamp."""


class StreamTableJoinStep:
    def __init__(self, operator: StreamTableJoin, context: BlockContext) -> None:
        self._joiner = callable_of(operator.joiner, "left_right")
        self._is_left = operator.join == "left"
        self._table: KeyValueStore = context.store(operator.table_store)
        context.task.watch(self._table)
        self._context = context

    def process_ports(self, deliveries: list[tuple[Block, int]]) -> None:
        block = together([block for block, port in deliveries if port == 0])
        if block is None:
            return
        joiner, is_left = self._joiner, self._is_left
        find = finder(self._table, block, together([block for block, port in deliveries if port == 1]))
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


class StreamStreamJoinStep:
    def __init__(self, operator: StreamStreamJoin, context: BlockContext) -> None:
        self._join = StreamJoin(operator, context)
        self._time = context.time
        self._context = context

    def process_ports(self, deliveries: list[tuple[Block, int]]) -> None:
        block, of = merged([block for block, _ in deliveries])
        # Rows of one delivery stay in their order.
        ways = [(port, self._join.written(port, block.keys, block.values)) for block, port in deliveries]
        results = _Joined()
        take, give = self._join.take, results.take
        headers: Headers = ()

        def attempt(record: Record, step: Callable[[Record], None]) -> None:
            self._context.attempt(block, results.row, record, step)

        for row, (key, value, timestamp, index) in enumerate(
            zip(block.keys, block.values, block.timestamps, of, strict=True)
        ):
            results.row = row
            self._time.carried = UNKNOWN if block.carried is None else block.carried[row]
            if block.headers is not None:
                headers = block.headers[row]
            port, written = ways[index]
            bytes_ = next(written)
            try:
                take(port, key, bytes_, value, timestamp, headers, give, attempt)
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
        self._context.forward(results.of(block))

    def end_of_batch(self) -> None:
        results = _Joined()
        self._join.close(results.take, self._context.attempt_at_the_end)
        if results.keys:
            self._context.forward(results.at_the_end())


class _Joined(Results):
    """Records that waited have headers of their own."""

    __slots__ = ("headers",)

    def __init__(self) -> None:
        super().__init__()
        self.headers: list[Headers] = []

    def take(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.give(key, value, timestamp)
        self.headers.append(headers)

    def of(self, block: Block, *, several: bool = True) -> Block:
        found = super().of(block, several=several)
        found.headers = self.headers if any(self.headers) else None
        return found

    def at_the_end(self) -> Block:
        found = super().at_the_end()
        found.headers = self.headers if any(self.headers) else None
        return found


def finder(store: KeyValueStore, block: Block, changes: Block | None) -> Find:
    """`changes`: the changes that the table's operator sent while it wrote the rows of this block; None if there are
    none."""
    replaced, row_at = store.replaced, store.row_at
    if changes is None or not replaced:
        return lambda raw, row: row_at(raw)
    assert len(replaced) == len(changes), f"{store.spec.name}: {len(replaced)} puts, {len(changes)} changes"
    assert block.order is not None
    assert changes.order is not None
    rank, rank_of_change = ranks((block.order, changes.order))
    histories: dict[bytes, tuple[list[Any], list[Snapshot]]] = {}
    for place, (raw, before) in enumerate(replaced):
        when, rows = histories.setdefault(raw, ([], []))
        when.append(rank_of_change(place))
        rows.append(before)

    def find(raw: bytes, row: int) -> tuple[Any, int] | None:
        history = histories.get(raw)
        if history is None:
            return row_at(raw)
        place = bisect_left(history[0], rank(row))
        return row_at(raw) if place == len(history[0]) else store.row_of(history[1][place])

    return find
