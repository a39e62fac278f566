"""Joins a stream with a table: each stream record with the current row. Updates of the table produce no results.

With a versioned table, the row is the one that was valid at the record's timestamp. With a grace period, records wait
in a buffer until no more rows are expected for their time, and leave it in the order of their timestamps. Results have
the stream record's timestamp.
"""

from __future__ import annotations

from typing import Any

from suiro.streams.operators.context import Context
from suiro.streams.operators.functions import callable_of
from suiro.streams.records import Record
from suiro.streams.stores.buffer import pack, unpack
from suiro.streams.topology.nodes import StreamGlobalTableJoin, StreamTableJoin


class StreamTableJoinRule:
    """Records with a null value are dropped; so are those with a null key, except in a left join."""

    def __init__(self, operator: StreamTableJoin, context: Context) -> None:
        self._joiner = callable_of(operator.joiner, "left_right")
        self._is_left = operator.join == "left"
        self._is_versioned = operator.versioned
        self._table = context.store(operator.table_store)
        self._grace_ms = operator.grace_ms or 0
        self._buffer: Any = None if operator.buffer_store is None else context.store(operator.buffer_store)
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        if port == 1:
            return
        if record.value is None:
            self._context.drop("null value")
        elif record.key is None and not self._is_left:
            self._context.drop("null key")
        elif self._buffer is None or record.key is None:
            # A record without a key never meets a row, so it has nothing to wait for.
            self._join(record)
        else:
            self._wait(record)

    def end_of_batch(self) -> None:
        self._let_go(self._context.time.current)

    def _wait(self, record: Record) -> None:
        time = self._context.time
        if record.timestamp < max(time.current, time.carried) - self._grace_ms:
            self._join(record)
        else:
            # Only records that wait make time pass for the others, as in Kafka Streams.
            time.observe(record.timestamp)
            buffer = self._buffer
            topic = f"{buffer.spec.name}-changelog"
            buffer.add(
                record.timestamp,
                buffer.spec.key.serialize(topic, record.key),
                pack(buffer.spec.value.serialize(topic, record.value), record.headers),
            )
        self._let_go(time.current)

    def _let_go(self, time: int) -> None:
        """Joins the waiting records for which no more late rows can come, in the order of time and key."""
        if self._buffer is None:
            return
        spec = self._buffer.spec
        topic = f"{spec.name}-changelog"
        for timestamp, key, payload in self._buffer.evict_before(time - self._grace_ms + 1):
            value, headers = unpack(payload)
            record = Record(spec.key.deserialize(topic, key), spec.value.deserialize(topic, value), timestamp, headers)
            self._context.attempt(record, self._join)

    def _join(self, record: Record) -> None:
        row = None
        if record.key is not None:
            versions = self._is_versioned
            row = self._table.get_as_of(record.key, record.timestamp) if versions else self._table.table_row(record.key)
        if row is not None or self._is_left:
            self._forward(record.with_value(self._joiner(record.value, None if row is None else row[0])))


class StreamGlobalTableJoinRule:
    """The mapper gives the table's key. Without one a record is dropped, except in a left join."""

    def __init__(self, operator: StreamGlobalTableJoin, context: Context) -> None:
        self._mapper = callable_of(operator.key_mapper, "key_value")
        self._joiner = callable_of(operator.joiner, "left_right")
        self._is_left = operator.join == "left"
        self._table = context.store(operator.table_store)
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        if record.value is None:
            self._context.drop("null value")
            return
        key = self._mapper(record.key, record.value)
        if key is None and not self._is_left:
            self._context.drop("null key")
            return
        row = None if key is None else self._table.table_row(key)
        if row is not None or self._is_left:
            self._forward(record.with_value(self._joiner(record.value, None if row is None else row[0])))
