"""Kafka's primitive fields in the records of the coordinators' topics: big-endian, strings with a 16-bit length."""

from __future__ import annotations

import struct
from typing import Self

_INT8, _INT16 = struct.Struct(">b"), struct.Struct(">h")
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")


class FieldWriter:
    """Fields in the order of the calls; `done` gives the bytes."""

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
        self.int16(len(encoded))
        self._buffer += encoded
        return self

    def octets(self, value: bytes) -> Self:
        self.int32(len(value))
        self._buffer += value
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
