"""`WindowedAggregateRule` over blocks. The windows are those of `operators.windowing` in both."""

from __future__ import annotations

from suiro.streams.blocks.block import Block
from suiro.streams.blocks.context import BlockContext
from suiro.streams.blocks.results import Results
from suiro.streams.operators.windowed_aggregate import windowing_of
from suiro.streams.times import UNKNOWN
from suiro.streams.topology.nodes import SessionAggregate, TimeWindowAggregate


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
