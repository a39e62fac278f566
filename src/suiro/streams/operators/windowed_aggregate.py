"""Runs a windowed aggregate record by record: time windows, sliding windows or sessions (`windowing`)."""

from __future__ import annotations

from typing import assert_never

from suiro.streams.operators.context import Context, OperatorContext
from suiro.streams.operators.windowing import SessionWindowing, SlidingWindowing, TimeWindowing, Windowing
from suiro.streams.records import Change, Headers, Record, Windowed
from suiro.streams.topology.nodes import SessionAggregate, SlidingAggregate, TimeWindowAggregate, WindowedAggregate


def windowing_of(operator: WindowedAggregate, context: OperatorContext, *, reads_old: bool = True) -> Windowing:
    match operator:
        case TimeWindowAggregate():
            return TimeWindowing(operator, context, reads_old=reads_old)
        case SlidingAggregate():
            return SlidingWindowing(operator, context, reads_old=reads_old)
        case SessionAggregate():
            return SessionWindowing(operator, context, reads_old=reads_old)
        case _:
            assert_never(operator)


class WindowedAggregateRule:
    """A record with a null key is dropped and does not advance time; in sliding windows also a record with a null
    value."""

    def __init__(self, operator: WindowedAggregate, context: Context) -> None:
        self._windowing = windowing_of(operator, context)
        self._headers: Headers = ()
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        if record.key is None or (record.value is None and self._windowing.drops_null_values):
            self._context.drop("null key" if record.key is None else "null value")
            return
        self._headers = record.headers
        self._windowing.take(record.key, None, record.value, record.timestamp, port, self._give)
        self._windowing.close(self._give)

    def end_of_batch(self) -> None:
        self._headers = ()
        self._windowing.close(self._give)

    def _give(self, key: Windowed, change: Change, timestamp: int) -> None:
        self._forward(Record(key, change, timestamp, self._headers))


TimeWindowAggregateRule = SlidingAggregateRule = SessionAggregateRule = WindowedAggregateRule
