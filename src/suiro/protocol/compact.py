"""Unsigned varints, in which the flexible versions of Kafka's messages say lengths (KIP-482)."""

from __future__ import annotations

__all__ = ["uvarint"]

_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
