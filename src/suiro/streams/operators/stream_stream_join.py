"""Joins two streams: records with the same key whose timestamps are close enough. Each pair is joined once.

A record joins those that the other side's store still has, whenever it comes itself; there is no other lateness. In
left and outer joins a record that meets none waits until its window and grace have passed, and leaves with a null for
the other side, in the order of time, side (right first) and key; one whose window has passed already when it comes does
not wait. As in Kafka Streams, unmatched records are looked at when a record comes that is not behind in time, and time
also passes by records that are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from suiro.streams.operators.functions import callable_of
from suiro.streams.operators.waiting import pack, unpack
from suiro.streams.records import Record
from suiro.streams.stores.stream_join import StreamJoinStore
from suiro.streams.topology.nodes import StreamStreamJoin

if TYPE_CHECKING:
    from suiro.streams.operators.context import Context

__all__ = ["StreamStreamJoinRule"]


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """Until when an unmatched record waits, this time included."""
        return timestamp + self.after_ms + self.grace_ms

    def raw_key(self, key: Any) -> bytes:
        return self.mark + self.store.spec.key.serialize(f"{self.store.spec.name}-changelog", key)


class StreamStreamJoinRule:
    def __init__(self, operator: StreamStreamJoin, context: Context) -> None:
        windows = operator.windows
        joiner = callable_of(operator.joiner, "left_right")
        left = _Side(
            store=context.store(operator.left_store),
            before_ms=windows.before_ms,
            after_ms=windows.after_ms,
            grace_ms=windows.grace_ms,
            joiner=joiner,
            waits_unmatched=operator.join != "inner",
            mark=b"\x01",
        )
        right = _Side(
            store=context.store(operator.right_store),
            before_ms=windows.after_ms,
            after_ms=windows.before_ms,
            grace_ms=windows.grace_ms,
            joiner=lambda right, left: joiner(left, right),
            waits_unmatched=operator.join == "outer",
            mark=b"\x00",
        )
        self._sides = ((left, right), (right, left))
        self._by_mark = {side.mark: side for side in (left, right)}
        # A join without width and grace would else keep nothing at all.
        self._retention_ms = max(1, windows.retention_ms)
        # Waiting records are kept by the time until which they wait; the two sides may wait differently long.
        self._unmatched = None if operator.outer_store is None else context.store(operator.outer_store)
        self._context = context
        self._time = context.time
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        own, other = self._sides[port]
        key, value, timestamp = record.key, record.value, record.timestamp
        self._time.observe(timestamp)
        now = self._time.current
        if value is None:
            self._context.drop("null value")
            return
        if key is None:
            if own.waits_unmatched:
                self._forward(record.with_value(own.joiner(value, None)))  # it can match nothing (KIP-962)
            else:
                self._context.drop("null key")
            return
        own.store.put(key, value, timestamp)
        if timestamp == now:
            self._emit_unmatched(now)
        first = max(timestamp - own.before_ms, self._oldest(other, now))
        matches = list(other.store.fetch(key, first, timestamp + own.after_ms))
        for other_timestamp, other_value in matches:
            if self._unmatched is not None and other.waits_unmatched:
                self._unmatched.remove(other.last_time(other_timestamp), other.raw_key(key))
            result = own.joiner(value, other_value)
            self._forward(Record(key, result, max(timestamp, other_timestamp), record.headers))
        if not matches and own.waits_unmatched:
            if timestamp + own.after_ms < now:
                self._forward(record.with_value(own.joiner(value, None)))
            else:
                self._wait(own, record)

    def end_of_batch(self) -> None:
        time = self._time.current
        if self._time.was_passed:
            self._emit_unmatched(time)
        for side, _ in self._sides:
            side.store.expire(self._oldest(side, time))

    def _oldest(self, side: _Side, time: int) -> int:
        """The first timestamp of a side that is still joined: by the side's own time, as in Kafka Streams."""
        return min(side.store.time, time) - self._retention_ms + 1

    def _wait(self, side: _Side, record: Record) -> None:
        assert self._unmatched is not None
        spec = side.store.spec
        value = spec.value.serialize(f"{spec.name}-changelog", record.value)
        self._unmatched.add(
            side.last_time(record.timestamp), side.raw_key(record.key), pack(value, record.headers)
        )

    def _emit_unmatched(self, time: int) -> None:
        if self._unmatched is None:
            return
        due = []
        for order, (last_time, marked_key, payload) in enumerate(self._unmatched.evict_before(time)):
            mark, raw = marked_key[:1], marked_key[1:]
            side = self._by_mark[mark]
            due.append((last_time - side.after_ms - side.grace_ms, mark, raw, order, payload))
        for timestamp, mark, raw, _, payload in sorted(due):
            side = self._by_mark[mark]
            spec = side.store.spec
            topic = f"{spec.name}-changelog"
            data, headers = unpack(payload)
            key, value = spec.key.deserialize(topic, raw), spec.value.deserialize(topic, data)
            self._context.attempt(Record(key, value, timestamp, headers), partial(self._stands_alone, side))

    def _stands_alone(self, side: _Side, record: Record) -> None:
        self._forward(record.with_value(side.joiner(record.value, None)))
