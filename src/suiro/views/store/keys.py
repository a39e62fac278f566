"""A row's key as bytes, so that rows have one order, and as text in a path or a query: `UA/2013-07-04`.

`place_of` is injective, and the bytes compare as the keys do, part by part: null, false, true, numbers by value, text
by code point, lists and objects by their JSON. They are the same in every store and every version. The bytes of a key
are followed by those of all keys that begin with it, so a range of keys is a range of bytes, and so is a prefix.

The types that a column has in the store decide how a part of a path is read. If the column has only text, a part is
text. If it has only other values, a part is JSON. If it has both, a part is JSON if the column has values of that type;
to look for such a text, put it in quotes: `"5"`. Every spelling of a value finds it: `1e0` and `1.0` in a column of
integers, `1` in a column with 1.0. In a column with integers and other numbers, `1` and `1.0` are two keys, as in
Kafka.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from suiro.errors import UsageError
from suiro.views.store.json_text import canonical

AFTER_ALL = b"\xff"
"""Larger than every place. Appended to a place, larger than all places that begin with it. No part begins with it."""

KeyTypes = tuple[frozenset[str], ...]
"""For each column of the key, the types that its values have had."""
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}

_NULL, _FALSE, _TRUE, _NUMBER, _TEXT, _NESTED = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\x06"
_SMALL_INT, _LARGE_INT, _FLOAT = b"\x00", b"\x01", b"\x02"
_EXACT = 2**53  # integers up to here are floats too
_SIGN = 1 << 63
_ALL_BITS = (1 << 64) - 1

_double = struct.Struct(">d").pack
_bits = struct.Struct(">Q").pack


def place_of(key: Sequence[Any]) -> bytes:
    """Raises `UsageError` for a part that is not a JSON value."""
    return b"".join([_part(part) for part in key])


def prefix_of(key: Sequence[Any]) -> bytes:
    """Returns the beginning of the places of all keys with these first parts. The last one may be part of a text."""
    if not key or not isinstance(key[-1], str):
        return place_of(key)
    return place_of(key[:-1]) + (_text(key[-1])[:-1] if key[-1] else b"")


def range_of(
    first: Sequence[Any] | None, last: Sequence[Any] | None, prefix: Sequence[Any] | None, after: bytes | None
) -> tuple[bytes, bytes]:
    """Returns the places from which and up to which, not included, the rows are. `first` and `last` are included, and
    may be the first parts of a key. `prefix`: see `prefix_of`. `after`: a place that is not included."""
    start = b"" if first is None else place_of(first)
    end = AFTER_ALL if last is None else place_of(last) + AFTER_ALL
    if prefix is not None:
        begins = prefix_of(prefix)
        start, end = max(start, begins), min(end, begins + AFTER_ALL)
    if after is not None:
        start = max(start, after + b"\x00")  # the next larger bytes
    return start, end


def _part(part: Any) -> bytes:
    if isinstance(part, str):
        return _text(part)
    if part is None:
        return _NULL
    if isinstance(part, bool):
        return _TRUE if part else _FALSE
    if isinstance(part, int):
        small = -_EXACT <= part <= _EXACT
        return _NUMBER + _ordered_double(_nearest(part)) + (_SMALL_INT if small else _LARGE_INT + _whole(part))
    if isinstance(part, float):
        return _NUMBER + _ordered_double(part) + _FLOAT
    if isinstance(part, (list, tuple, dict)):
        return _NESTED + canonical(part).encode() + b"\x00"
    raise UsageError(
        f"a view's key has a part of type {type(part).__name__}, {part!r:.80}; parts are what JSON has: text, "
        "numbers, true, false, null, or lists and objects of them. Convert it in the topology"
    )


def _text(part: str) -> bytes:
    return _TEXT + part.encode("utf-8", "surrogatepass").replace(b"\x00", b"\x00\xff") + b"\x00"


def _nearest(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _ordered_double(number: float) -> bytes:
    bits = int.from_bytes(_double(number), "big")
    return _bits(bits ^ _ALL_BITS if bits & _SIGN else bits | _SIGN)


def _whole(number: int) -> bytes:
    """Returns the length of an integer, then its bytes. A negative one has all bits inverted."""
    size = (number.bit_length() + 7) // 8
    data = size.to_bytes(4, "big") + abs(number).to_bytes(size, "big")
    if number > 0:
        return b"\x01" + data
    return b"\x00" + bytes(byte ^ 0xFF for byte in data)


def parts_of(text: str) -> list[str]:
    """Splits a path that is still quoted: a part may contain a slash as %2F."""
    return [unquote(part) for part in text.split("/")]


def key_of(
    parts: Sequence[str], columns: Sequence[str], types: KeyTypes, *, is_prefix: bool = False
) -> tuple[Any, ...]:
    """Returns the key, or its first parts. The last part of a prefix is a beginning: text, if the column has text."""
    if len(parts) > len(columns):
        raise UsageError(f"{len(parts)} parts of a key, {'/'.join(parts)}; the view has {', '.join(columns)}")
    last = len(parts) - 1
    return tuple(
        _read(part, name, kinds, stays_text=is_prefix and number == last)
        for number, (part, name, kinds) in enumerate(zip(parts, columns, types, strict=False))
    )


def key_of_values(values: Sequence[Any], columns: Sequence[str], types: KeyTypes) -> tuple[Any, ...]:
    """As `key_of`, for parts that are JSON values. Text is read as in a path."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    return key_of(texts, columns, types)


def _read(part: str, column: str, kinds: frozenset[str], *, stays_text: bool) -> Any:
    if kinds <= {"string"} or (stays_text and "string" in kinds):
        return part
    try:
        value = json.loads(part)
        kind = JSON_TYPES.get(type(value), "nested")
    except (ValueError, RecursionError):
        value, kind = part, "string"
    if kind == "integer" and kind not in kinds and "number" in kinds:
        with suppress(OverflowError):  # there is no such key
            return float(value)
    if kind == "number" and kind not in kinds and "integer" in kinds and value.is_integer():
        return int(value)
    if kind in kinds:
        return value
    if "string" in kinds:
        return part
    raise UsageError(f"key column {column!r} is of type {' or '.join(sorted(kinds))}, and {part!r} is not")
