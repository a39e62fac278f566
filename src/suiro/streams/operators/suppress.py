"""`suppress`: buffers the updates of a table, and forwards only the last one of each key.

An update waits until its window closes (the key is `Windowed`), or for a time after the key's first waiting update.
It waits less if the buffer is full and may emit early. The last update is forwarded with its timestamp and headers, as
a change from the value that was forwarded before. Updates leave in the order of (time, key bytes).

Deletions wait and are forwarded like other updates, except if windows close: there a deleted row has no final result.
"""

from __future__ import annotations

import struct
from typing import Any

from suiro.streams.errors import ProcessingError
from suiro.streams.operators.context import Context
from suiro.streams.records import Change, Headers, Record, Windowed
from suiro.streams.serdes import SessionWindowedSerde, TimeWindowedSerde
from suiro.streams.stores.buffer import TimeOrderedBuffer, framed, read_framed
from suiro.streams.topology.nodes import StoreSpec, Suppress

_TIMESTAMP = struct.Struct(">q")
_WINDOW = struct.Struct(">qq")
_FIRST_PART = 2 + _TIMESTAMP.size
"""Where the old value of a payload begins: behind two flags and the timestamp."""


class SuppressRule:
    def __init__(self, operator: Suppress, context: Context) -> None:
        self._operator = operator
        self._buffer: TimeOrderedBuffer = context.store(operator.store)
        self._form = _Form(self._buffer.spec)
        self._delay = operator.closing_delay_ms
        if self._delay is not None:
            context.time.closes_after(self._delay)
        self._time = context.time
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        time = max(self._time.observe(record.timestamp), self._time.closed)
        if not record.value.is_latest:
            self._context.drop("not the latest version")
        elif self._delay is None:
            self._wait(record, record.timestamp)
        elif not isinstance(record.key, Windowed):
            raise TypeError("only a windowed table can be suppressed until its windows close")
        elif time >= record.key.end + self._delay + self._operator.inclusive_end:  # closed, see `windows`
            self._context.drop("late")
        elif record.value.new is None:
            self._buffer.delete(self._form.key(record.key))
        else:
            self._wait(record, record.key.end)
        self._let_go()

    def end_of_batch(self) -> None:
        self._let_go()

    def _wait(self, record: Record, time: int) -> None:
        key = self._form.key(record.key)
        self._buffer.put(time, key, self._form.payload(record, self._buffer.get(key)))

    def _let_go(self) -> None:
        now = self._time.closed = max(self._time.current, self._time.closed)
        held_ms = self._operator.time_limit_ms if self._delay is None else self._delay
        if held_ms is not None:
            before = now - held_ms + (0 if self._operator.inclusive_end else 1)
            for _, key, payload in self._buffer.evict_before(before):
                self._forward(self._form.record(key, payload))
        if not self._is_full():
            return
        if not self._operator.emits_early_when_full:
            raise ProcessingError(self._full())
        for _, key, payload in self._buffer.evict_while(self._is_full):
            self._forward(self._form.record(key, payload))

    def _is_full(self) -> bool:
        operator = self._operator
        return (operator.max_records is not None and len(self._buffer) > operator.max_records) or (
            operator.max_bytes is not None and self._buffer.size_in_bytes > operator.max_bytes
        )

    def _full(self) -> str:
        operator = self._operator
        limits = [
            f"{limit:,} {what}"
            for limit, what in ((operator.max_records, "records"), (operator.max_bytes, "bytes"))
            if limit is not None
        ]
        return (
            f"the buffer of {self._context.node.name} is full: {len(self._buffer):,} records with "
            f"{self._buffer.size_in_bytes:,} bytes wait, and {' and '.join(limits)} may. Nothing was lost: the "
            "records are read again. Allow more (max_records, max_bytes, or no limit), shorten the grace, or let it "
            "emit early when it is full"
        )


class _Form:
    """Keys and updates as bytes. A windowed key is the plain key's bytes, the window's end and start, unless the
    store's serde takes windowed keys itself."""

    def __init__(self, spec: StoreSpec) -> None:
        self._spec = spec
        self._topic = f"{spec.name}-changelog"
        self._takes_windowed = isinstance(spec.key, TimeWindowedSerde | SessionWindowedSerde)

    def key(self, key: Any) -> bytes:
        if isinstance(key, Windowed) and not self._takes_windowed:
            return self._spec.key.serialize(self._topic, key.key) + _WINDOW.pack(key.end, key.start)
        return self._spec.key.serialize(self._topic, key)

    def payload(self, record: Record, waiting: bytes | None) -> bytes:
        """Returns an update as bytes. Its old value is the one that was forwarded before: that of the first update that
        waits."""
        change: Change = record.value
        flags = isinstance(record.key, Windowed) and not self._takes_windowed, change.is_latest
        return b"".join(
            (
                bytes(flags),
                _TIMESTAMP.pack(record.timestamp),
                self._value(change.old) if waiting is None else framed(read_framed(waiting, _FIRST_PART)[0]),
                self._value(change.new),
                *(part for name, value in record.headers for part in (framed(name.encode()), framed(value))),
            )
        )

    def record(self, key: bytes, payload: bytes) -> Record:
        is_windowed, is_latest = bool(payload[0]), bool(payload[1])
        (timestamp,) = _TIMESTAMP.unpack_from(payload, 2)
        parts: list[bytes | None] = []
        place = _FIRST_PART
        while place < len(payload):
            part, place = read_framed(payload, place)
            parts.append(part)
        old, new = (None if part is None else self._spec.value.deserialize(self._topic, part) for part in parts[:2])
        headers: Headers = tuple(
            ((name or b"").decode(), value) for name, value in zip(parts[2::2], parts[3::2], strict=True)
        )
        found: Any
        if is_windowed:
            end, start = _WINDOW.unpack_from(key, len(key) - _WINDOW.size)
            found = Windowed(self._spec.key.deserialize(self._topic, key[: -_WINDOW.size]), start, end)
        else:
            found = self._spec.key.deserialize(self._topic, key)
        return Record(found, Change(new, old, is_latest), timestamp, headers)

    def _value(self, value: Any) -> bytes:
        return framed(None if value is None else self._spec.value.serialize(self._topic, value))
