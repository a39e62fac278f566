"""Windowed aggregates: how a record changes the windows of its key, how windows close, and how long rows stay.

`windowed_aggregate` runs them record by record, `blocks.aggregates` over blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from suiro.streams.operators.aggregate import Update, updates_of
from suiro.streams.operators.context import OperatorContext
from suiro.streams.operators.functions import callable_of
from suiro.streams.records import Change, Windowed
from suiro.streams.topology import nodes
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
        operator: nodes.WindowedAggregate,
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

    def __init__(self, operator: nodes.TimeWindowAggregate, context: OperatorContext, *, reads_old: bool) -> None:
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


_Row = tuple[Any, int]
"""An aggregate, and the timestamp of its latest record."""


class _InHand(msgspec.Struct, frozen=True):
    """The record in hand. `time`: the time it is judged by."""

    key: Any
    value: Any
    timestamp: int
    update: Update
    time: int
    give: Give


class SlidingWindowing(Windowing):
    """`count`, `reduce`, `aggregate` in sliding windows (KIP-450); also of co-groups, one aggregator for each port.

    A key has two windows for each record at t: the one that ends at t, and the one that starts at t + 1 if any record
    is in it; both ends are inclusive. Windows never start before 0: records at t < difference share the window that
    starts there. A row's timestamp is that of the latest record in it, which is how the record before another one is
    found.

    A record goes into each of its windows that is not closed. One that is too late for all is dropped; each window that
    it is too late for is counted.

    Rows stay as long as a record may come whose windows are found by them: for twice the difference and the grace after
    their start, and 1 ms more. Kafka Streams removes them earlier, so such windows can be missing there.
    """

    drops_null_values = True

    def __init__(self, operator: nodes.SlidingAggregate, context: OperatorContext, *, reads_old: bool) -> None:
        self._windows = operator.windows
        self._difference = self._windows.difference_ms
        self._length = self._difference + self._windows.grace_ms
        # The window that starts after a record is open until difference + grace + 1 after the record. The record is
        # found by the window that ends at it, which starts one difference earlier.
        super().__init__(operator, context, delay_ms=self._length, kept_longer_ms=1, reads_old=reads_old)

    def take(self, key: Any, raw: bytes | None, value: Any, timestamp: int, port: int, give: Give) -> None:
        time = max(self._time.observe(timestamp), self._time.closed)
        if self._windows.is_closed(timestamp + self._difference, time):
            self._drop("late")
            return
        record = _InHand(key, value, timestamp, self._updates[port], time, give)
        if timestamp < self._difference:
            self._take_early(record)
        else:
            self._take(record)

    def _take(self, record: _InHand) -> None:
        key, t, difference = record.key, record.timestamp, self._difference
        before: int | None = None  # the latest record's timestamp before t
        left: Any = None  # the aggregate of what is before t in the window that ends at t
        right: _Row | None = None  # the window that starts behind t, where it must be made
        seen: set[int] = set()
        has_left = False
        for start, value, latest in self._store.fetch_rows(key, t - 2 * difference, t + 1, reverse=True):
            end = start + difference
            if start == t + 1:
                seen.add(start)
            elif end > t:
                if t + 1 not in seen:
                    # Earlier windows hold no more records after t.
                    right = self._store.get_with_timestamp(key, start) if latest > t else None
                    seen.add(t + 1)
                seen.add(start)
                self._update(record, start, (value, latest), is_new=False)
            elif end == t:
                has_left = True
                self._update(record, start, (value, latest), is_new=False)
                if latest == t:  # nothing is new for the windows of this time
                    return
                before = latest
                seen.add(start)
            else:
                left, before = value, latest
                seen.add(start)
                break
        if before is not None and before + 1 not in seen and before + 1 + difference >= t:
            self._update(record, before + 1, None, is_new=True)
        if not has_left:
            base = (left, t) if before is not None and before >= t - difference else None
            self._update(record, t - difference, base, is_new=True)
        if right is not None:
            self._make(record, t + 1, right)

    def _take_early(self, record: _InHand) -> None:
        """The window that ends at the record would start before 0; the one that starts at 0 stands for it."""
        key, t = record.key, record.timestamp
        first: _Row | None = None
        right: _Row | None = None
        seen: set[int] = set()
        for start, value, latest in self._store.fetch_rows(key, 0, t + 1):
            seen.add(start)
            if start == 0:
                first = (value, latest)
            elif start <= t:
                right = self._store.get_with_timestamp(key, start)
                self._update(record, start, (value, latest), is_new=False)
        if right is None and first is not None:
            # No window starts between 0 and t, so there is no record before t if there is one after it.
            right = self._store.get_with_timestamp(key, 0)
        if t + 1 not in seen and right is not None and right[1] > t:
            self._make(record, t + 1, right)
        if first is not None and first[1] < t and first[1] + 1 not in seen:
            self._update(record, first[1] + 1, None, is_new=True)
        self._update(record, 0, first, is_new=first is None)

    def _update(self, record: _InHand, start: int, base: _Row | None, *, is_new: bool) -> None:
        """Puts the record into a window; `base` is the row before, or what a new one starts from."""
        key, end = record.key, start + self._difference
        if self._windows.is_closed(end, record.time):
            self._drop("late")
            return
        old, timestamp = (None, record.timestamp) if base is None else (base[0], max(base[1], record.timestamp))
        new = record.update(key, record.value, old)
        if is_new or new is old:
            # The aggregator may have changed the old row in place. If the window that starts after the previous record
            # is the one that ends at this record, it is made twice, and the second time there is a row.
            there = self._store.get_with_timestamp(key, start)
            old = None if there is None else there[0]
        self._store.put(key, new, start, timestamp)
        if not self._emits_final:
            record.give(Windowed(key, start, end), Change(new, old), timestamp)

    def _make(self, record: _InHand, start: int, row: _Row) -> None:
        """Makes a window that the record is not in."""
        self._store.put(record.key, row[0], start, row[1])
        if not self._emits_final:
            window = Windowed(record.key, start, start + self._difference)
            record.give(window, Change(row[0]), row[1])

    def _give_closed(self, before: int, now: int, give: Give) -> None:
        # Closed are the windows that start before this; see `SlidingWindows.is_closed`.
        first, last = before - self._length, now - self._length - 1
        for key, start, value, timestamp in self._store.rows_between(first, last):
            give(Windowed(key, start, start + self._difference), Change(value), timestamp)


class SessionWindowing(Windowing):
    """`count`, `reduce`, `aggregate` in sessions; also of co-groups, one aggregator for each port.

    A record makes a session of its own, merged with every session of its key that is no further than the gap. The
    merged ones are removed, and their removal goes on first. A result's timestamp is the session's end. A null value
    goes to the aggregator. An aggregator that gives None removes the session: the key's next record begins a new one.

    A session is extended only while its end is later than time, as it was before the record, less gap and grace. A
    record that would make a session that is closed already is late.
    """

    def __init__(self, operator: nodes.SessionAggregate, context: OperatorContext, *, reads_old: bool) -> None:
        self._windows = operator.windows
        super().__init__(operator, context, delay_ms=operator.windows.closing_delay_ms, reads_old=reads_old)
        self._initializer = operator.aggregation.initializer
        merger, (update,) = operator.merger, self._updates[:1]
        self._merge: Update
        """(key, aggregate, aggregate of a further session) -> that of both."""
        if operator.aggregation.kind == "count":
            self._merge = lambda key, count, further: (count or 0) + further
        elif merger is None:
            self._merge = lambda key, found, further: update(key, further, found)
        else:
            self._merge = callable_of(merger, "key_value_aggregate")

    def take(self, key: Any, raw: bytes | None, value: Any, timestamp: int, port: int, give: Give) -> None:
        gap, delay, store = self._windows.gap_ms, self._windows.closing_delay_ms, self._store
        # A carried time later than the record's is that of earlier records, also of other tasks.
        time_before = max(self._time.current, self._time.closed)
        if self._time.carried > timestamp:
            time_before = max(time_before, self._time.carried)
        time = max(self._time.observe(timestamp), self._time.closed)
        if raw is None:
            raw = store.key_of(key)
        merged = store.sessions_at(raw, max(timestamp - gap, time_before - delay + 1), timestamp + gap)
        start = end = timestamp
        for earlier, later, _ in merged:
            if earlier < start:
                start = earlier
            if later > end:
                end = later
        if self._windows.is_closed(end, time):
            self._drop("late")
            return
        total = self._initializer() if merged and self._initializer is not None else None
        for _, _, found in merged:
            total = self._merge(key, total, found)
        new = self._updates[port](key, value, total)
        # Merging may have changed the values in place, so the old values are read again, before the new row replaces
        # one of them.
        replaced = [] if start == end else [(one, other) for one, other, _ in merged]
        bounds = (*replaced, (start, end))
        old_values = [store.value_at(raw, *each) if self._reads_old else None for each in bounds]
        old = None if replaced else old_values[-1]
        # A function that fails, or a value that cannot be written, leaves everything as it was.
        store.put_at(raw, new, start, end)
        for (one, other), before in zip(replaced, old_values, strict=False):
            if (one, other) != (start, end):
                store.put_at(raw, None, one, other)
            if not self._emits_final:
                give(Windowed(key, one, other), Change(None, before), other)
        if not self._emits_final:
            give(Windowed(key, start, end), Change(new, old), end)

    def _give_closed(self, before: int, now: int, give: Give) -> None:
        # Closed are the sessions that end before this; see `SessionWindows.is_closed`.
        delay = self._windows.closing_delay_ms
        for session, value in self._store.ending_between(before - delay, now - delay - 1):
            give(session, Change(value), session.end)


def _joined_with(context: OperatorContext, name: str) -> list[str]:
    """Returns the other windowed stores that this one is joined with, directly or through others."""
    kinds = {spec.name: spec.kind for spec in context.task.sub_topology.stores}
    pairs = [
        {node.operator.left_store, node.operator.right_store}
        for node in context.task.sub_topology.nodes
        if isinstance(node.operator, nodes.TableTableJoin)
    ]
    found = {name}
    for _ in pairs:
        for pair in pairs:
            if pair & found and all(kinds.get(store) in ("window", "session") for store in pair):
                found |= pair
    return sorted(found - {name})
