"""Unsigned varints, in which the flexible versions of Kafka's messages say lengths (KIP-482)."""

from __future__ import annotations

__all__ = ["read_uvarint", "uvarint"]

_MOST_BYTES = 5  # of 32 bits
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


def read_uvarint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The number at a position, and the position behind it. Raises `ValueError`."""
    value = 0
    try:
        for turn in range(_MOST_BYTES):
            byte = data[position + turn]
            value |= (byte & 0x7F) << (7 * turn)
            if byte < 0x80:
                return value, position + turn + 1
    except IndexError:
        raise ValueError("it ends in the middle") from None
    raise ValueError(f"the number at byte {position} has more than 32 bits")
