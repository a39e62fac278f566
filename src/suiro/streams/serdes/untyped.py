"""The default serdes: `natural` for topics, `tagged` for state.

`natural` writes a value the way a reader would expect it and cannot be read back, because its bytes do not
say what they were. `tagged` reads back exactly what it wrote: one byte says what follows.
"""

from __future__ import annotations

import datetime
import decimal
import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import isfinite
from types import NoneType
from typing import Any, ClassVar

from suiro.errors import UsageError
from suiro.streams.records import Windowed
from suiro.streams.serdes.json_text import read_json, write_block, write_value
from suiro.streams.serdes.primitives import integer_of
from suiro.streams.serdes.serde import DeserializationError, SerializationError

_LONG = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class NaturalSerde:
    """Write only: bytes as they are, str as UTF-8, int as int64, float as double, bool, dict, list, tuple as JSON."""

    name: ClassVar[str] = "natural"

    def serialize(self, topic: str, value: Any) -> bytes:
        match value:
            case bytes():
                return value
            case bytearray() | memoryview():
                return bytes(value)
            case str():
                try:
                    return value.encode()
                except UnicodeEncodeError as error:
                    raise SerializationError(self.name, topic, "str", f"not valid text: {error}") from None
            case bool() | dict() | list() | tuple():
                return write_value(self.name, topic, value)
            case float():
                return _DOUBLE.pack(value)
        number = integer_of(value)
        if number is None:
            raise SerializationError(self.name, topic, type(value).__name__, "give a serde for it (key=, value=)")
        if not -(1 << 63) <= number < 1 << 63:
            raise SerializationError(self.name, topic, type(value).__name__, f"{number} exceeds 64 bits")
        return _LONG.pack(number)

    def encode_block(self, values: Sequence[Any], topic: str) -> list[bytes | None]:
        kinds = set(map(type, values)) - {NoneType}
        if kinds <= {str}:
            return [None if value is None else value.encode() for value in values]
        if kinds <= {dict, list}:
            return write_block(values)
        return [None if value is None else self.serialize(topic, value) for value in values]

    def deserialize(self, topic: str, data: bytes) -> Any:
        raise UsageError(
            f"topic {topic!r} is read without a serde, and its bytes do not say what they are; "
            "give one, for example key=serdes.string, value=serdes.json"
        )


@dataclass(frozen=True, slots=True)
class TaggedSerde:
    """Reads back what it wrote: None, bool, int, float, str, bytes, Windowed, Decimal, UUID, date, time, datetime (of
    no zone or a fixed one), and list, tuple, dict and set of them.

    Equal dicts and sets give equal bytes, whatever their order. A subclass (an OrderedDict, a named tuple)
    is refused, because it would come back as something else.
    """

    name: ClassVar[str] = "tagged"

    def serialize(self, topic: str, value: Any) -> bytes:
        try:
            return _pack(topic, value)
        except RecursionError:
            raise SerializationError(self.name, topic, type(value).__name__, "it is nested too deeply") from None

    def encode_block(self, values: Sequence[Any], topic: str) -> list[bytes | None]:
        if set(map(type, values)) <= {dict, list, NoneType}:
            return write_block(values, b"j", partial(_pack, topic))
        return [None if value is None else _pack(topic, value) for value in values]

    def decode_block(self, data: Sequence[bytes | None], topic: str) -> list[Any]:
        return [None if item is None else _unpack(item) for item in data]

    def deserialize(self, topic: str, data: bytes) -> Any:
        try:
            return _unpack(data)
        except (ValueError, IndexError, TypeError, struct.error, RecursionError) as error:
            raise DeserializationError(self.name, topic, str(error) or type(error).__name__) from None


def _pack(topic: str, value: Any) -> bytes:
    kind = type(value)
    if kind is str:
        try:
            return b"s" + bytes(value, "utf-8")
        except UnicodeEncodeError as error:
            raise SerializationError("tagged", topic, "str", f"not valid text: {error}") from None
    if kind is int:
        return _pack_integer(value)
    if kind is dict or kind is list:
        # JSON is written and read in C; what it cannot give back as it was goes item by item.
        if _is_plain(value):
            return b"j" + write_value("tagged", topic, value)
        if kind is dict:
            pairs = sorted((_pack(topic, key), _pack(topic, item)) for key, item in value.items())
            return b"m" + _framed(chain.from_iterable(pairs))
    if value is None or kind is bool:
        return _CONSTANTS[value]
    if kind is bytes:
        return b"b" + bytes(value)
    if isinstance(value, float):
        return b"d" + _DOUBLE.pack(value)
    if kind is Windowed:
        return b"w" + _LONG.pack(value.start) + _LONG.pack(value.end) + _pack(topic, value.key)
    tag = _COLLECTIONS.get(kind)
    if tag is not None:
        items = [_pack(topic, item) for item in value]
        return tag + _framed(sorted(items) if kind is set or kind is frozenset else items)
    number = integer_of(value)
    return _pack_text(topic, value) if number is None else _pack_integer(number)


def _pack_text(topic: str, value: Any) -> bytes:
    kind = type(value)
    for tag, other, text_of, _ in _TEXTS:
        if kind is other and not _loses_zone(value):
            return tag + str(text_of(value)).encode()
    raise SerializationError(
        "tagged", topic, f"{kind.__module__}.{kind.__qualname__}", "give the store or operator a serde for it"
    )


def _decimal_of(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise ValueError(f"{text.encode()!r} is no number") from None


_CONSTANTS = {None: b"0", True: b"T", False: b"F"}
_COLLECTIONS: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"u", frozenset: b"z"}
_TEXTS: tuple[tuple[bytes, type, Any, Any], ...] = (
    (b"D", decimal.Decimal, str, _decimal_of),
    (b"U", uuid.UUID, str, uuid.UUID),
    (b"a", datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    (b"c", datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
    (b"A", datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
)


def _loses_zone(value: Any) -> bool:
    """Tells whether the text of a time would lose its zone: it has the offset only."""
    if not isinstance(value, datetime.time | datetime.datetime):
        return False
    return value.fold != 0 or not (value.tzinfo is None or type(value.tzinfo) is datetime.timezone)


def _pack_integer(value: int) -> bytes:
    if -(1 << 63) <= value < 1 << 63:
        return b"i" + _LONG.pack(value)
    return b"n" + value.to_bytes(value.bit_length() // 8 + 1, signed=True)


def _framed(items: Iterable[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(item)) + item for item in items)


_ATOMS = frozenset({str, int, bool, type(None)})


def _is_plain(value: Any) -> bool:
    """Tells whether JSON gives the value back as it was."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is float:
        return isfinite(value)
    if kind is list:
        for item in value:  # noqa: SIM110  (`all` takes another frame at each level)
            if not (type(item) in _ATOMS or _is_plain(item)):
                return False
        return True
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not (type(item) in _ATOMS or _is_plain(item)):
                return False
        return True
    return False


def _unpack(data: bytes) -> Any:
    tag, rest = data[:1], data[1:]
    match tag:
        case b"s":
            return rest.decode()
        case b"i":
            return _LONG.unpack(rest)[0]
        case b"j":
            return read_json(rest)
        case b"0" | b"T" | b"F" if not rest:
            return {b"0": None, b"T": True, b"F": False}[tag]
        case b"b":
            return rest
        case b"d":
            return _DOUBLE.unpack(rest)[0]
        case b"n":
            return int.from_bytes(rest, signed=True)
        case b"l" | b"t" | b"u" | b"z":
            return next(kind for kind, known in _COLLECTIONS.items() if known == tag)(_unpack_items(rest))
        case b"m":
            items = _unpack_items(rest)
            return dict(zip(items[::2], items[1::2], strict=True))
        case b"w":
            return Windowed(_unpack(rest[16:]), *struct.unpack(">qq", rest[:16]))
    for known, _, _, read in _TEXTS:
        if known == tag:
            return read(rest.decode())
    raise ValueError(f"no value starts with {tag!r}")


def _unpack_items(data: bytes) -> list[Any]:
    items, position = [], 0
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        start, position = position + 4, position + 4 + length
        if position > len(data):
            raise ValueError("an item is cut off")
        items.append(_unpack(data[start:position]))
    return items
