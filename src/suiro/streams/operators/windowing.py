"""Windowed aggregates: how a record changes the windows of its key, how windows close, and how long rows stay.

Time windows are here, sliding windows and sessions in modules of their own. `windowed_aggregate` runs them record by
record, `blocks.windowed_aggregate` over blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suiro.streams.operators.aggregate import updates_of
from suiro.streams.operators.context import OperatorContext
from suiro.streams.records import Change, Windowed
from suiro.streams.topology.nodes import TableTableJoin, TimeWindowAggregate, WindowedAggregate
from suiro.streams.windows import EmitStrategy

_DAY_MS = 86_400_000

Give = Callable[[Windowed, Change, int], None]
"""(key, change, timestamp) of a result."""


class Windowing:
    """The windows of one operator. It takes no records with a null key.

    `delay_ms`: a window closes this long after its start, or after the end of a session. `kept_longer_ms`: rows stay
    this much longer than the retention. `reads_old`: an operator below reads the old values of changes.

    A windowed table may lag behind one that it is joined with. Its updates meet the other's rows, so those stay until
    the slower table has passed them, but no longer than a day beyond their retention: the slower table may get no more
    records. (In Kafka Streams the slower table's updates find nothing.)
    """

    drops_null_values = False
    gives_several = True
    """Whether one record may have several results."""

    def __init__(
        self,
        operator: WindowedAggregate,
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
        self._kept_ms = max(self._store.spec.retention_ms or 0, operator.windows.retention_ms) + kept_longer_ms
        """A row is removed when time is later than its start (the end of a session) by more than this."""
        self._store.expires_before = context.time.closed - self._kept_ms
        self._joined = [context.store(name) for name in _joined_with(context, operator.store)]
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
        limit = self._store.expires_before = now - self._kept_ms
        if not self._joined:
            self._store.remove_before(limit)
            return
        slowest = min(limit, *(store.expires_before for store in self._joined))
        for store in (self._store, *self._joined):
            store.remove_before(max(slowest, store.expires_before - _DAY_MS))

    def _give_closed(self, before: int, now: int, give: Give) -> None:
        """Gives the results of the windows that are closed at `now` and were not at `before`."""
        raise NotImplementedError


class TimeWindowing(Windowing):
    """`count`, `reduce`, `aggregate` in tumbling and hopping windows; also of co-groups, one aggregator for each port.

    A record goes into every window that holds its timestamp and is not closed; each window it is too late for is
    counted. A null value goes to the aggregator. A result's timestamp is the later one of the record's and the row's.
    An aggregator that gives None deletes the row.

    Rows stay as long as the store's retention, and never less than their window is open.
    """

    def __init__(self, operator: TimeWindowAggregate, context: OperatorContext, *, reads_old: bool) -> None:
        self._windows = operator.windows
        self._length = self._windows.size_ms + self._windows.grace_ms
        super().__init__(operator, context, delay_ms=self._length, kept_longer_ms=-1, reads_old=reads_old)
        self.gives_several = self._emits_final or self._windows.advance_ms != self._windows.size_ms

    def take(self, key: Any, raw: bytes | None, value: Any, timestamp: int, port: int, give: Give) -> None:
        windows, store, update = self._windows, self._store, self._updates[port]
        reads_old, emits_final = self._reads_old, self._emits_final
        time = max(self._time.observe(timestamp), self._time.closed)
        for start in windows.starts_for(timestamp):
            end = start + windows.size_ms
            if windows.is_closed(end, time):
                self._drop("late")
                continue
            if raw is None:
                raw = store.key_of(key)
            found = store.row_at(raw, start)
            old, latest = None, timestamp
            if found is not None:
                old, latest = found[0], max(found[1], timestamp)
            new = update(key, value, old)
            if new is old and found is not None and reads_old:
                old = store.row_at(raw, start)[0]  # the aggregator may have changed it in place
            store.put_at(raw, new, start, latest)
            if not emits_final:
                give(Windowed(key, start, end), Change(new, old if reads_old else None), latest)

    def _give_closed(self, before: int, now: int, give: Give) -> None:
        # Closed are the windows that start this long before; see `TimeWindows.is_closed`.
        if now >= self._length:
            first = max(0, before - self._length + 1)
            for key, start, value, timestamp in self._store.rows_between(first, now - self._length):
                give(Windowed(key, start, start + self._windows.size_ms), Change(value), timestamp)


def _joined_with(context: OperatorContext, name: str) -> list[str]:
    """Returns the other windowed stores that this one is joined with, directly or through others."""
    kinds = {spec.name: spec.kind for spec in context.task.sub_topology.stores}
    pairs = [
        {node.operator.left_store, node.operator.right_store}
        for node in context.task.sub_topology.nodes
        if isinstance(node.operator, TableTableJoin)
    ]
    found = {name}
    for _ in pairs:
        for pair in pairs:
            if pair & found and all(kinds.get(store) in ("window", "session") for store in pair):
                found |= pair
    return sorted(found - {name})
