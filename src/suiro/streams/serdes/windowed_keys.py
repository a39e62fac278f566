"""Windowed keys in topics, in Kafka Streams' formats, around the serde of the plain key.

Time windows: key bytes, then the start as int64; the end is the start plus the window's size, which the
bytes do not carry. Sessions: key bytes, then the end, then the start, both int64.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suiro.errors import UsageError
from suiro.streams.records import LATEST_MS, Windowed
from suiro.streams.serdes.block_forms import decode_block, encode_block
from suiro.streams.serdes.serde import DeserializationError, Serde, SerializationError

_ONE = struct.Struct(">q")
_TWO = struct.Struct(">qq")


def time_windowed(inner: Serde, size_ms: int) -> TimeWindowedSerde:
    """For keys of tumbling, hopping and sliding windows of this size."""
    if isinstance(size_ms, bool) or not isinstance(size_ms, int) or size_ms < 0:
        raise UsageError(f"a window's size is {size_ms!r}; give milliseconds, 0 or more")
    return TimeWindowedSerde(inner, size_ms)


def session_windowed(inner: Serde) -> SessionWindowedSerde:
    """For keys of session windows."""
    return SessionWindowedSerde(inner)


@dataclass(frozen=True, slots=True)
class TimeWindowedSerde:
    """Key bytes and start."""

    inner: Serde
    size_ms: int

    @property
    def name(self) -> str:
        return f"time_windowed({self.inner.name}, {self.size_ms})"

    def serialize(self, topic: str, value: Any) -> bytes:
        key = _key_bytes(self.name, self.inner, topic, value)
        try:
            return key + _ONE.pack(value.start)
        except struct.error as error:
            raise SerializationError(self.name, topic, "Windowed", f"its start: {error}") from None

    def deserialize(self, topic: str, data: bytes) -> Windowed:
        if len(data) < _ONE.size:
            raise DeserializationError(self.name, topic, f"8 bytes of window are missing in {len(data)}")
        key = self.inner.deserialize(topic, data[: -_ONE.size])
        (start,) = _ONE.unpack_from(data, len(data) - _ONE.size)
        return Windowed(key, start, min(start + self.size_ms, LATEST_MS))

    def decode_block(self, data: Sequence[bytes | None], topic: str) -> list[Any]:
        size, latest = self.size_ms, LATEST_MS
        starts = [0 if item is None else _ONE.unpack(item[-8:])[0] for item in data]
        keys = decode_block(self.inner, [None if item is None else item[:-8] for item in data], topic)
        return [
            None if item is None else Windowed(key, start, min(start + size, latest))
            for item, key, start in zip(data, keys, starts, strict=True)
        ]

    def encode_block(self, values: Sequence[Any], topic: str) -> list[bytes | None]:
        keys = _block_of_keys(self.name, self.inner, topic, values)
        return [None if key is None else key + _ONE.pack(value.start) for key, value in zip(keys, values, strict=True)]


@dataclass(frozen=True, slots=True)
class SessionWindowedSerde:
    """Key bytes, end and start."""

    inner: Serde

    @property
    def name(self) -> str:
        return f"session_windowed({self.inner.name})"

    def serialize(self, topic: str, value: Any) -> bytes:
        key = _key_bytes(self.name, self.inner, topic, value)
        try:
            return key + _TWO.pack(value.end, value.start)
        except struct.error as error:
            raise SerializationError(self.name, topic, "Windowed", f"its times: {error}") from None

    def deserialize(self, topic: str, data: bytes) -> Windowed:
        if len(data) < _TWO.size:
            raise DeserializationError(self.name, topic, f"16 bytes of window are missing in {len(data)}")
        key = self.inner.deserialize(topic, data[: -_TWO.size])
        end, start = _TWO.unpack_from(data, len(data) - _TWO.size)
        return Windowed(key, start, end)

    def decode_block(self, data: Sequence[bytes | None], topic: str) -> list[Any]:
        times = [(0, 0) if item is None else _TWO.unpack(item[-16:]) for item in data]
        keys = decode_block(self.inner, [None if item is None else item[:-16] for item in data], topic)
        return [
            None if item is None else Windowed(key, start, end)
            for item, key, (end, start) in zip(data, keys, times, strict=True)
        ]

    def encode_block(self, values: Sequence[Any], topic: str) -> list[bytes | None]:
        keys = _block_of_keys(self.name, self.inner, topic, values)
        return [
            None if key is None else key + _TWO.pack(value.end, value.start)
            for key, value in zip(keys, values, strict=True)
        ]


def _key_bytes(name: str, inner: Serde, topic: str, value: Any) -> bytes:
    if not isinstance(value, Windowed):
        raise SerializationError(name, topic, type(value).__name__, "it takes Windowed(key, start, end)")
    if value.key is None:
        raise SerializationError(name, topic, "Windowed", "its key is None, and a windowed key has one")
    return inner.serialize(topic, value.key)


def _block_of_keys(name: str, inner: Serde, topic: str, values: Sequence[Any]) -> list[bytes | None]:
    for value in values:
        if value is not None and (not isinstance(value, Windowed) or value.key is None):
            _key_bytes(name, inner, topic, value)
    return encode_block(inner, [None if value is None else value.key for value in values], topic)
