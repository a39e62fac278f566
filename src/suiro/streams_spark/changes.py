"""A table's `Change` as the bytes of a repartition topic, in Kafka Streams' format (`ChangedSerializer`, KIP-904).

Both sides: varint length of new, new, old, 0x02. New alone: new, 0x01. Old alone: old, 0x00.
"""

from __future__ import annotations

from suiro.streams.records import Change
from suiro.streams.serdes import Serde

__all__ = ["read_change", "write_change"]

_OLD, _NEW, _BOTH = b"\x00", b"\x01", b"\x02"


def write_change(serde: Serde, topic: str, change: Change) -> bytes | None:
    new = None if change.new is None else serde.serialize(topic, change.new)
    old = None if change.old is None else serde.serialize(topic, change.old)
    if new is not None and old is not None:
        return _varint(len(new)) + new + old + _BOTH
    if new is not None:
        return new + _NEW
    return None if old is None else old + _OLD


def read_change(serde: Serde, topic: str, data: bytes) -> Change:
    kind, body = data[-1:], data[:-1]
    if kind == _NEW:
        return Change(serde.deserialize(topic, body))
    if kind == _OLD:
        return Change(None, serde.deserialize(topic, body))
    length, start = _read_varint(body)
    new, old = body[start : start + length], body[start + length :]
    return Change(serde.deserialize(topic, new), serde.deserialize(topic, old))


def _varint(number: int) -> bytes:
    """Zigzag, then seven bits a byte (`ByteUtils.writeVarint`)."""
    value = number << 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _read_varint(data: bytes) -> tuple[int, int]:
    value = shift = position = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1, position
        shift += 7
