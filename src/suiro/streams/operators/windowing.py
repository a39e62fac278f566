"""The common part of windowed aggregates: how a record changes the windows of its key, and how windows close.

Time windows, sliding windows and sessions are subclasses, each in a module of its own. `windowed_aggregate` runs them
record by record, `blocks.windowed_aggregate` over blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suiro.streams.operators.aggregate import updates_of
from suiro.streams.operators.row_expiry import OperatorContext, RowExpiry
from suiro.streams.records import Change, Windowed
from suiro.streams.topology.nodes import SessionAggregate, SlidingAggregate, TimeWindowAggregate
from suiro.streams.windows import EmitStrategy

Give = Callable[[Windowed, Change, int], None]
"""(key, change, timestamp) of a result."""


class Windowing:
    """The windows of one operator. It takes no records with a null key.

    `delay_ms`: a window closes this long after its start, or after the end of a session. `kept_longer_ms`: rows stay
    this much longer than the retention. `reads_old`: an operator below reads the old values of changes.
    """

    drops_null_values = False
    gives_several = True
    """Whether one record may have several results."""

    def __init__(
        self,
        operator: TimeWindowAggregate | SlidingAggregate | SessionAggregate,
        context: OperatorContext,
        *,
        delay_ms: int,
        kept_longer_ms: int = 0,
        reads_old: bool = True,
    ) -> None:
        self._updates = updates_of(operator.aggregation)
        self._emits_final = operator.emit is EmitStrategy.ON_WINDOW_CLOSE
        self._reads_old = reads_old and not self._emits_final
        self._store: Any = context.store(operator.store)
        context.time.closes_after(delay_ms)
        retention_ms = max(self._store.spec.retention_ms or 0, operator.windows.retention_ms)
        self._expiry = RowExpiry(context, self._store, retention_ms + kept_longer_ms)
        self._time = context.time
        self._drop = context.drop
        self.keys_of = self._store.keys_of

    def take(self, key: Any, raw: bytes | None, value: Any, timestamp: int, port: int, give: Give) -> None:
        """Puts a record into its windows. `raw`: the bytes of the key; None: not known."""
        raise NotImplementedError

    def close(self, give: Give) -> None:
        """Gives the results of the windows that closed since the last call, and removes old rows."""
        before, now = self._time.closed, self._time.current
        if now <= before:
            return
        self._time.closed = now
        if self._emits_final:
            self._give_closed(before, now, give)
        self._expiry.time_is(now)

    def _give_closed(self, before: int, now: int, give: Give) -> None:
        """Gives the results of the windows that are closed at `now` and were not at `before`."""
        raise NotImplementedError
