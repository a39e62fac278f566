"""Windowed keys in topics, in Kafka Streams' formats, around the serde of the plain key.

Time windows: key bytes, then the start as int64; the end is the start plus the window's size, which the
bytes do not carry. Sessions: key bytes, then the end, then the start, both int64.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from suiro.errors import UsageError
from suiro.streams.records import LATEST_MS, Windowed
from suiro.streams.serdes.block_forms import decode_block, encode_block
from suiro.streams.serdes.serde import DeserializationError, Serde, SerializationError


def time_windowed(inner: Serde, size_ms: int) -> TimeWindowedSerde:
    """For keys of tumbling, hopping and sliding windows of this size."""
    if isinstance(size_ms, bool) or not isinstance(size_ms, int) or size_ms < 0:
        raise UsageError(f"a window's size is {size_ms!r}; give milliseconds, 0 or more")
    return TimeWindowedSerde(inner, size_ms)


def session_windowed(inner: Serde) -> SessionWindowedSerde:
    """For keys of session windows."""
    return SessionWindowedSerde(inner)


@dataclass(frozen=True, slots=True)
class _WindowedSerde:
    """`layout`: of the numbers behind the key."""

    inner: Serde

    layout: ClassVar[struct.Struct]

    @property
    def name(self) -> str:
        raise NotImplementedError

    def serialize(self, topic: str, value: Any) -> bytes:
        if not isinstance(value, Windowed):
            raise SerializationError(self.name, topic, type(value).__name__, "it takes Windowed(key, start, end)")
        if value.key is None:
            raise SerializationError(self.name, topic, "Windowed", "its key is None, and a windowed key has one")
        key = self.inner.serialize(topic, value.key)
        try:
            return key + self._packed(value)
        except struct.error as error:
            raise SerializationError(self.name, topic, "Windowed", f"its times: {error}") from None

    def deserialize(self, topic: str, data: bytes) -> Windowed:
        size = self.layout.size
        if len(data) < size:
            raise DeserializationError(self.name, topic, f"{size} bytes of window are missing in {len(data)}")
        return self._windowed(self.inner.deserialize(topic, data[:-size]), *self.layout.unpack(data[-size:]))

    def decode_block(self, data: Sequence[bytes | None], topic: str) -> list[Any]:
        size, unpack, windowed = self.layout.size, self.layout.unpack, self._windowed
        times = [None if item is None else unpack(item[-size:]) for item in data]
        keys = decode_block(self.inner, [None if item is None else item[:-size] for item in data], topic)
        return [None if at is None else windowed(key, *at) for key, at in zip(keys, times, strict=True)]

    def encode_block(self, values: Sequence[Any], topic: str) -> list[bytes | None]:
        for value in values:
            if value is not None and (not isinstance(value, Windowed) or value.key is None):
                self.serialize(topic, value)  # which says what is wrong
        keys = encode_block(self.inner, [None if value is None else value.key for value in values], topic)
        packed = self._packed
        return [None if key is None else key + packed(value) for key, value in zip(keys, values, strict=True)]

    def _packed(self, value: Windowed) -> bytes:
        raise NotImplementedError

    def _windowed(self, key: Any, *times: int) -> Windowed:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class TimeWindowedSerde(_WindowedSerde):
    """Key bytes and start."""

    size_ms: int

    layout: ClassVar[struct.Struct] = struct.Struct(">q")

    @property
    def name(self) -> str:
        return f"time_windowed({self.inner.name}, {self.size_ms})"

    def _packed(self, value: Windowed) -> bytes:
        return self.layout.pack(value.start)

    def _windowed(self, key: Any, *times: int) -> Windowed:
        return Windowed(key, times[0], min(times[0] + self.size_ms, LATEST_MS))


@dataclass(frozen=True, slots=True)
class SessionWindowedSerde(_WindowedSerde):
    """Key bytes, end and start."""

    layout: ClassVar[struct.Struct] = struct.Struct(">qq")

    @property
    def name(self) -> str:
        return f"session_windowed({self.inner.name})"

    def _packed(self, value: Windowed) -> bytes:
        return self.layout.pack(value.end, value.start)

    def _windowed(self, key: Any, *times: int) -> Windowed:
        return Windowed(key, times[1], times[0])
