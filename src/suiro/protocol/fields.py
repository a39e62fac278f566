"""Readers and writers of Kafka's primitive fields, big-endian, where no generated message is used.

The older structures have strings with a 16-bit length; the flexible ones (KIP-482) have compact lengths, where 0 is
null and otherwise the length plus one, and end each structure with tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Self
from uuid import UUID

_INT8, _INT16 = struct.Struct(">b"), struct.Struct(">h")
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")

_MOST_BYTES = 5  # of an unsigned varint with 32 bits
_ONE_BYTE = [bytes((value,)) for value in range(0x80)]

MAX_STRING_BYTES = 0x7FFF
"""Of the older strings, which the keys of the coordinators' records have, and of the compact ones in requests."""


def uvarint(value: int) -> bytes:
    """An unsigned varint, in which flexible versions write lengths."""
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


def varlong(data: bytes | bytearray | memoryview, at: int, end: int, bits: int = 64) -> tuple[int, int]:
    """(value, next place) of a zigzag number; the place is -1 where it is torn or has more bits."""
    value = shift = 0
    while at < end and shift < bits:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << bits) - 1
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    return 0, -1


def int64(value: int) -> int:
    """Wraps a sum of two 64-bit numbers that does not fit into 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def put_varint(out: bytearray, value: int) -> None:
    """Append a signed number as a zigzag varint; 32 and 64 bits are written alike."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def array_length(count: int, *, flexible: bool) -> bytes:
    """The number in front of an array, or of bytes and records."""
    return uvarint(count + 1) if flexible else count.to_bytes(4, "big")


def string(text: str | None, *, flexible: bool) -> bytes:
    """A string that may be null."""
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    encoded = text.encode()
    return (uvarint(len(encoded) + 1) if flexible else len(encoded).to_bytes(2, "big")) + encoded


class FieldWriter:
    """Fields in the order of the calls; `done` gives the bytes. A string that is too long raises ValueError."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def int8(self, value: int) -> Self:
        self._buffer += _INT8.pack(value)
        return self

    def int16(self, value: int) -> Self:
        self._buffer += _INT16.pack(value)
        return self

    def int32(self, value: int) -> Self:
        self._buffer += _INT32.pack(value)
        return self

    def int64(self, value: int) -> Self:
        self._buffer += _INT64.pack(value)
        return self

    def string(self, value: str | None) -> Self:
        if value is None:
            return self.int16(-1)
        encoded = value.encode()
        if len(encoded) > MAX_STRING_BYTES:
            raise ValueError(f"a string of {len(encoded)} bytes, which is over {MAX_STRING_BYTES}")
        self.int16(len(encoded))
        self._buffer += encoded
        return self

    def octets(self, value: bytes) -> Self:
        self.int32(len(value))
        self._buffer += value
        return self

    def uvarint(self, value: int) -> Self:
        self._buffer += uvarint(value)
        return self

    def compact_string(self, value: str | None) -> Self:
        return self.compact_octets(None if value is None else value.encode())

    def compact_octets(self, value: bytes | None) -> Self:
        if value is None:
            return self.uvarint(0)
        self.uvarint(len(value) + 1)
        self._buffer += value
        return self

    def compact_count(self, count: int) -> Self:
        """The number of elements in front of a compact array."""
        return self.uvarint(count + 1)

    def uuid(self, value: UUID) -> Self:
        self._buffer += value.bytes
        return self

    def tags(self, tagged: Mapping[int, bytes] = {}) -> Self:
        """The tagged fields that end a flexible structure, by number."""
        self.uvarint(len(tagged))
        for number in sorted(tagged):
            self.uvarint(number).uvarint(len(tagged[number]))
            self._buffer += tagged[number]
        return self

    def done(self) -> bytes:
        return bytes(self._buffer)


class FieldReader:
    """The same fields back. Raises ValueError (struct.error is none, so it is turned into one) past the end."""

    def __init__(self, buffer: bytes) -> None:
        self._buffer = buffer
        self._position = 0

    def _take(self, form: struct.Struct) -> int:
        try:
            (value,) = form.unpack_from(self._buffer, self._position)
        except struct.error as error:
            raise ValueError(f"a record of {len(self._buffer)} bytes ends too early") from error
        self._position += form.size
        return int(value)

    def _slice(self, length: int) -> bytes:
        part = self._buffer[self._position : self._position + length]
        if len(part) != length:
            raise ValueError(f"a record of {len(self._buffer)} bytes ends too early")
        self._position += length
        return part

    def int8(self) -> int:
        return self._take(_INT8)

    def int16(self) -> int:
        return self._take(_INT16)

    def int32(self) -> int:
        return self._take(_INT32)

    def int64(self) -> int:
        return self._take(_INT64)

    def optional_string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._slice(length).decode()

    def string(self) -> str:
        return self.optional_string() or ""

    def octets(self) -> bytes:
        return self._slice(max(0, self.int32()))

    def uvarint(self) -> int:
        value, self._position = read_uvarint(self._buffer, self._position)
        return value

    def optional_compact_string(self) -> str | None:
        length = self.uvarint()
        return None if length == 0 else self._slice(length - 1).decode()

    def compact_string(self) -> str:
        return self.optional_compact_string() or ""

    def compact_octets(self) -> bytes:
        return self._slice(max(0, self.uvarint() - 1))

    def compact_count(self) -> int:
        return max(0, self.uvarint() - 1)

    def uuid(self) -> UUID:
        return UUID(bytes=self._slice(16))

    def tags(self) -> dict[int, bytes]:
        return {self.uvarint(): self._slice(self.uvarint()) for _ in range(self.uvarint())}
