"""Bytes, strings, numbers and booleans in the formats of Kafka's own serdes: big-endian, UTF-8, one byte.

Columns go through NumPy views and Arrow kernels; no row becomes a Python object unless it is in error.
PyArrow and NumPy are loaded by the first column only.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar

from suiro.streams.serdes.block_forms import refused
from suiro.streams.serdes.serde import DeserializationError, Serde, SerializationError

if TYPE_CHECKING:
    import pyarrow as pa

EXACT_DOUBLE = 1 << 53
"""Up to here every int is a double, so an int may be given for one."""


def integer_of(value: Any) -> int | None:
    """Returns the int of an int or a NumPy int; None for anything else, including booleans."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def are_of(kind: type, values: Iterable[Any]) -> bool:
    """Tells whether each value is None or of exactly this type."""
    return set(map(type, values)) <= {kind, NoneType}


@dataclass(frozen=True, slots=True)
class BytesSerde:
    """Bytes as they are."""

    name: ClassVar[str] = "bytes"

    def serialize(self, topic: str, value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise SerializationError(self.name, topic, type(value).__name__, "it takes bytes")

    def deserialize(self, topic: str, data: bytes) -> bytes:
        return data

    def decode_block(self, data: Sequence[bytes | None], topic: str) -> list[bytes | None]:
        return list(data)

    def encode_block(self, values: Sequence[Any], topic: str) -> list[bytes | None]:
        if are_of(bytes, values):
            return list(values)
        return [None if value is None else self.serialize(topic, value) for value in values]

    def decode_column(self, data: pa.Array, *, topic: str = "") -> pa.Array:
        return data

    def encode_column(self, values: pa.Array, *, topic: str = "") -> pa.Array:
        return _cast(self, values, topic, "binary", "binary", "large_binary")


@dataclass(frozen=True, slots=True)
class StringSerde:
    """Text as UTF-8."""

    name: ClassVar[str] = "string"

    def serialize(self, topic: str, value: Any) -> bytes:
        if not isinstance(value, str):
            raise SerializationError(self.name, topic, type(value).__name__, "it takes str")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SerializationError(self.name, topic, "str", f"not valid text: {error}") from None

    def deserialize(self, topic: str, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise DeserializationError(self.name, topic, f"not UTF-8: {error}") from None

    def decode_block(self, data: Sequence[bytes | None], topic: str) -> list[str | None]:
        return [None if item is None else item.decode() for item in data]

    def encode_block(self, values: Sequence[Any], topic: str) -> list[bytes | None]:
        if are_of(str, values):
            return [None if value is None else value.encode() for value in values]
        return [None if value is None else self.serialize(topic, value) for value in values]

    def decode_column(self, data: pa.Array, *, topic: str = "") -> pa.Array:
        import pyarrow as pa

        try:
            return data.cast(pa.binary()).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise refused(self, data.to_pylist(), topic) or error from None

    def encode_column(self, values: pa.Array, *, topic: str = "") -> pa.Array:
        import pyarrow as pa

        return _cast(self, values, topic, "string", "string", "large_string").cast(pa.binary())


class _NumberSerde:
    """The base of numbers of a fixed width. `kind`: the type whose values in a block need no further check. `layout`:
    that of `struct`. `dtype`: NumPy's."""

    __slots__ = ()

    name: ClassVar[str]
    kind: ClassVar[type]
    layout: ClassVar[struct.Struct]
    dtype: ClassVar[str]

    def serialize(self, topic: str, value: Any) -> bytes:
        raise NotImplementedError

    def deserialize(self, topic: str, data: bytes) -> Any:
        if len(data) != self.layout.size:
            raise DeserializationError(self.name, topic, f"it takes {self.layout.size} bytes, not {len(data)}")
        return self.layout.unpack(data)[0]

    def decode_block(self, data: Sequence[bytes | None], topic: str) -> list[Any]:
        unpack = self.layout.unpack
        return [None if item is None else unpack(item)[0] for item in data]

    def encode_block(self, values: Sequence[Any], topic: str) -> list[bytes | None]:
        if are_of(self.kind, values):
            pack = self.layout.pack
            return [None if value is None else pack(value) for value in values]
        return [None if value is None else self.serialize(topic, value) for value in values]

    def decode_column(self, data: pa.Array, *, topic: str = "") -> pa.Array:
        return _decode_fixed(self, topic, data, self.dtype)


class _IntegerSerde(_NumberSerde):
    __slots__ = ()

    kind = int

    def serialize(self, topic: str, value: Any) -> bytes:
        number = integer_of(value)
        if number is None:
            raise SerializationError(self.name, topic, type(value).__name__, "it takes int")
        try:
            return self.layout.pack(number)
        except struct.error:
            bits = 8 * self.layout.size
            raise SerializationError(
                self.name, topic, type(value).__name__, f"{number} does not fit into {bits} bits"
            ) from None

    def encode_column(self, values: pa.Array, *, topic: str = "") -> pa.Array:
        integers = _cast(self, values, topic, f"int{8 * self.layout.size}", "integer")
        return _encode_fixed(values, integers, self.dtype)


@dataclass(frozen=True, slots=True)
class IntSerde(_IntegerSerde):
    """int32, big-endian."""

    name: ClassVar[str] = "int"
    layout: ClassVar[struct.Struct] = struct.Struct(">i")
    dtype: ClassVar[str] = ">i4"


@dataclass(frozen=True, slots=True)
class LongSerde(_IntegerSerde):
    """int64, big-endian."""

    name: ClassVar[str] = "long"
    layout: ClassVar[struct.Struct] = struct.Struct(">q")
    dtype: ClassVar[str] = ">i8"


@dataclass(frozen=True, slots=True)
class DoubleSerde(_NumberSerde):
    """A 64-bit float, big-endian. Ints up to 2**53 are taken too, because they lose nothing."""

    name: ClassVar[str] = "double"
    kind: ClassVar[type] = float
    layout: ClassVar[struct.Struct] = struct.Struct(">d")
    dtype: ClassVar[str] = ">f8"

    def serialize(self, topic: str, value: Any) -> bytes:
        if isinstance(value, float):
            return self.layout.pack(value)
        number = integer_of(value)
        if number is None:
            raise SerializationError(self.name, topic, type(value).__name__, "it takes float")
        if abs(number) > EXACT_DOUBLE:
            raise SerializationError(self.name, topic, type(value).__name__, f"{number} is too large to be exact")
        return self.layout.pack(number)

    def encode_column(self, values: pa.Array, *, topic: str = "") -> pa.Array:
        # It refuses ints beyond 2**53.
        return _encode_fixed(values, _cast(self, values, topic, "double", "floating", "integer"), self.dtype)


@dataclass(frozen=True, slots=True)
class BooleanSerde:
    """One byte, 1 or 0."""

    name: ClassVar[str] = "boolean"

    def serialize(self, topic: str, value: Any) -> bytes:
        if not isinstance(value, bool):
            raise SerializationError(self.name, topic, type(value).__name__, "it takes bool")
        return b"\x01" if value else b"\x00"

    def deserialize(self, topic: str, data: bytes) -> bool:
        if data == b"\x01":
            return True
        if data == b"\x00":
            return False
        raise DeserializationError(self.name, topic, "a boolean is one byte, 0 or 1")

    def decode_column(self, data: pa.Array, *, topic: str = "") -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers = _decode_fixed(self, topic, data, "u1")
        if pc.any(pc.greater(numbers, 1)).as_py():
            raise refused(self, data.to_pylist(), topic) or AssertionError
        return numbers.cast(pa.bool_())

    def encode_column(self, values: pa.Array, *, topic: str = "") -> pa.Array:
        return _encode_fixed(values, _cast(self, values, topic, "bool", "boolean").cast("uint8"), "u1")


def _cast(serde: Serde, values: pa.Array, topic: str, wanted: str, *kinds: str) -> pa.Array:
    """Returns a column of these kinds, or of nulls, as one of the wanted type."""
    import pyarrow as pa

    found = values.type
    if not any(getattr(pa.types, f"is_{kind}")(found) for kind in (*kinds, "null")):
        raise SerializationError(serde.name, topic, str(found), f"it takes {kinds[0]} columns")
    try:
        return values.cast(wanted)
    except pa.ArrowInvalid as error:
        raise SerializationError(serde.name, topic, str(found), str(error)) from None


def _decode_fixed(serde: Serde, topic: str, data: pa.Array, layout: str) -> pa.Array:
    """A column of fixed-width numbers. `layout` is NumPy's, big-endian."""
    import numpy as np
    import pyarrow as pa

    dtype = np.dtype(layout)
    own = dtype.newbyteorder("=")
    size, rows = dtype.itemsize, len(data)
    column = data.cast(pa.binary())
    if rows == column.null_count:
        return pa.nulls(rows, pa.from_numpy_dtype(own))
    try:
        cells = column.cast(pa.binary(size))
    except pa.ArrowInvalid as error:
        raise refused(serde, column.to_pylist(), topic) or error from None
    numbers = np.frombuffer(cells.buffers()[1], dtype, rows, cells.offset * size).astype(own)
    return pa.array(numbers, mask=cells.is_null().to_numpy(zero_copy_only=False) if cells.null_count else None)


def _encode_fixed(values: pa.Array, numbers: pa.Array, layout: str) -> pa.Array:
    """`numbers` are `values` in the width of `layout`."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    dtype = np.dtype(layout)
    rows = len(values)
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    present = numbers.drop_null().to_numpy(zero_copy_only=False).astype(dtype)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(valid, out=offsets[1:])
    offsets *= dtype.itemsize
    validity = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.binary(), rows, [validity, pa.py_buffer(offsets), pa.py_buffer(present.tobytes())])
