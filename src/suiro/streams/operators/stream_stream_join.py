"""Joins two streams: records with the same key whose timestamps are close enough. Each pair is joined once.

A record joins the records that the other side's store still has, however late it comes itself. In left and outer joins
a record without a match waits until its window and grace have passed. It is then joined with null, in the order of
time, side (right first) and key. A record whose window has already passed when it comes does not wait. As in Kafka
Streams, unmatched records are looked at when a record comes that is not behind in time, and records that are dropped
advance time too.

Behind a repartition, a record is judged by how far its partition had come upstream, and so is whether the records that
it matches have waited long enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from suiro.streams.durations import LONGEST_MS
from suiro.streams.operators.context import Context, OperatorContext
from suiro.streams.operators.functions import callable_of
from suiro.streams.records import Headers, Record
from suiro.streams.stores.buffer import Entry, pack, unpack
from suiro.streams.stores.stream_join import StreamJoinStore
from suiro.streams.topology.nodes import StreamStreamJoin

Attempt = Callable[[Record, Callable[[Record], None]], None]


@dataclass(frozen=True, slots=True)
class _Side:
    """One port of the join. `joiner` takes this side's value first.

    A record at t joins the other side's from `t - before_ms` to `t + after_ms`. `mark` is the side in keys of
    unmatched records.
    """

    store: StreamJoinStore
    before_ms: int
    after_ms: int
    grace_ms: int
    joiner: Callable[[Any, Any], Any]
    waits_unmatched: bool
    mark: bytes

    def last_time(self, timestamp: int) -> int:
        """Returns the last time at which an unmatched record still waits."""
        return min(timestamp + self.after_ms + self.grace_ms, LONGEST_MS)


Give = Callable[[Any, Any, int, Headers], None]
"""(key, value, timestamp, headers) of a result."""

Written = tuple[bytes | None, bytes | None, bytes | None]
"""The bytes of the key for this side's store and for the other side's, and of the value for this side's; None if not
known."""

NOT_WRITTEN: Written = (None, None, None)


class StreamJoin:
    """The join itself, for `StreamStreamJoinRule` and for blocks."""

    def __init__(self, operator: StreamStreamJoin, context: OperatorContext) -> None:
        windows = operator.windows
        joiner = callable_of(operator.joiner, "left_right")
        before_ms, after_ms = windows.before_ms, windows.after_ms
        one, other = context.store(operator.left_store), context.store(operator.right_store)
        is_outer = operator.join == "outer"
        left = _Side(one, before_ms, after_ms, windows.grace_ms, joiner, operator.join != "inner", b"\x01")
        right = _Side(other, after_ms, before_ms, windows.grace_ms, lambda b, a: joiner(a, b), is_outer, b"\x00")
        self._sides = ((left, right), (right, left))
        self._by_mark = {side.mark: side for side in (left, right)}
        # Otherwise a join without width and grace would keep nothing.
        self._retention_ms = max(1, windows.retention_ms)
        # Waiting records are sorted by the time until which they wait, because the two sides may wait for different
        # times.
        self._unmatched = None if operator.outer_store is None else context.store(operator.outer_store)
        if self._unmatched is not None:
            self._unmatched.move(context.time.closes_after(windows.grace_ms))
        self._time = context.time
        self._drop = context.drop

    def written(self, port: int, keys: Sequence[Any], values: Sequence[Any]) -> Iterator[Written]:
        """Returns the bytes for `take` of many records that come by one port."""
        own, other = self._sides[port]
        return zip(
            own.store.keys_of(keys)[0],
            other.store.keys_of(keys)[0],
            own.store.all_data_of(values)[0],
            strict=True,
        )

    def take(
        self,
        port: int,
        key: Any,
        written: Written,
        value: Any,
        timestamp: int,
        headers: Headers,
        give: Give,
        attempt: Attempt,
    ) -> None:
        """Joins a record. `attempt(record, step)` runs a step for a record that waited; if it fails, only that record
        is left out."""
        own, other = self._sides[port]
        self._time.observe(timestamp)
        now = self._time.current
        if value is None:
            self._drop("null value")
            return
        if key is None:
            if own.waits_unmatched:
                give(key, own.joiner(value, None), timestamp, headers)  # it can match nothing (KIP-962)
            else:
                self._drop("null key")
            return
        raw, other_raw, data = written
        if raw is None:
            raw = own.store.key_of(key)
        if data is None:
            data = own.store.data_of(value)
        own.store.put_at(raw, data, timestamp)
        if timestamp == now:
            self._emit_unmatched(now, give, attempt)
        if other_raw is None:
            other_raw = other.store.key_of(key)
        first = max(timestamp - own.before_ms, self._oldest(other, now))
        matches = other.store.fetch_at(other_raw, first, timestamp + own.after_ms)
        for other_timestamp, other_value in matches:
            if self._unmatched is not None and other.waits_unmatched:
                last_time = other.last_time(other_timestamp)
                waited = self._unmatched.remove(last_time, other.mark + other_raw)
                if self._time.carried > max(now, last_time):
                    # In another cut, the task may have heard of that time, from other tasks, before the match came.
                    self._emit(waited, give, attempt)
            result = own.joiner(value, other_value)
            give(key, result, max(timestamp, other_timestamp), headers)
        if not matches and own.waits_unmatched:
            if timestamp + own.after_ms < max(now, self._time.carried):
                give(key, own.joiner(value, None), timestamp, headers)
            else:
                assert self._unmatched is not None
                payload = pack(data, headers)
                self._unmatched.add(own.last_time(timestamp), own.mark + raw, payload)

    def close(self, give: Give, attempt: Attempt) -> None:
        """Ends a batch: emits unmatched records whose time has passed, and removes old records."""
        time = self._time.current
        if self._time.was_passed:
            self._emit_unmatched(time, give, attempt)
        for side, _ in self._sides:
            side.store.expire(self._oldest(side, time))

    def _oldest(self, side: _Side, time: int) -> int:
        """Returns the first timestamp of a side that is still joined. It follows from the side's own time, as in Kafka
        Streams."""
        return min(side.store.time, time) - self._retention_ms + 1

    def _emit_unmatched(self, time: int, give: Give, attempt: Attempt) -> None:
        if self._unmatched is None:
            return
        first = self._unmatched.min_time
        if first is not None and first < time:
            self._emit(self._unmatched.evict_before(time), give, attempt)

    def _emit(self, entries: Iterable[Entry], give: Give, attempt: Attempt) -> None:
        due = []
        for order, (last_time, marked_key, payload) in enumerate(entries):
            mark, raw = marked_key[:1], marked_key[1:]
            side = self._by_mark[mark]
            due.append((last_time - side.after_ms - side.grace_ms, mark, raw, order, payload))
        for timestamp, mark, raw, _, payload in sorted(due):
            side = self._by_mark[mark]
            spec = side.store.spec
            topic = f"{spec.name}-changelog"
            data, headers = unpack(payload)
            key, value = spec.key.deserialize(topic, raw), spec.value.deserialize(topic, data)
            attempt(Record(key, value, timestamp, headers), partial(self._alone, side, give))

    def _alone(self, side: _Side, give: Give, record: Record) -> None:
        give(record.key, side.joiner(record.value, None), record.timestamp, record.headers)


class StreamStreamJoinRule:
    def __init__(self, operator: StreamStreamJoin, context: Context) -> None:
        self._join = StreamJoin(operator, context)
        self._attempt = context.attempt
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        key, value, timestamp, headers = record.key, record.value, record.timestamp, record.headers
        self._join.take(port, key, NOT_WRITTEN, value, timestamp, headers, self._give, self._attempt)

    def end_of_batch(self) -> None:
        self._join.close(self._give, self._attempt)

    def _give(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self._forward(Record(key, value, timestamp, headers))
