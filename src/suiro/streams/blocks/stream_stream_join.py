"""`StreamStreamJoinRule` over blocks. What a record does is `operators.stream_stream_join.StreamJoin` in both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suiro.streams.blocks.block import Block, merged
from suiro.streams.blocks.context import BlockContext
from suiro.streams.blocks.results import Results
from suiro.streams.operators.stream_stream_join import StreamJoin
from suiro.streams.records import Headers, Record
from suiro.streams.times import UNKNOWN
from suiro.streams.topology.nodes import StreamStreamJoin


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
