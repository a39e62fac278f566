"""Finds Avro values that are nested too deeply, or that are large without bytes, before fastavro reads them.

A record that contains itself, such as a list or a tree, can be nested one level for each byte. fastavro reads it
recursively in C, and some thousand levels crash the process. An array of nulls has as many items as its count says, in
five bytes. Records that only contain each other twice double at each level. Few schemas allow this. For those, each
value is checked first, without recursion.
"""

from __future__ import annotations

import re
from typing import Any

from suiro.registry.codecs.avro_schemas import kind_of, meant, named_types, parts_of

MAX_NESTING = 500
"""The depth of nested records, arrays and maps, in a value of a recursive schema."""
MAX_EMPTY_ITEMS = 10_000
"""The number of items without bytes in one value. Fields without bytes may exceed the bytes of the value by as many."""
MAX_PARTS = 10_000
"""The number of types of a schema that becomes columns, each counted as often as it is used."""
FEW_EMPTY_FIELDS = 16
MAX_FIXED_BYTES = (1 << 31) - 1
MOST_DIGITS = 38
"""Of a decimal that has a column."""

_STREAM = re.compile(r" from <_io\.BytesIO object at 0x[0-9a-f]+>")
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS = ("int", "long", "enum")
_TEXTS = ("bytes", "string")


def what_is_wrong(error: Exception) -> str:
    """fastavro's message without the address of the stream, so that a repeated dead letter is identical."""
    text = f"{type(error).__name__}: {_STREAM.sub('', str(error))}"
    if isinstance(error, OverflowError):
        text += " (Python's dates have the years 1 to 9999; write the field without a logical type, or as text)"
    return text


def decimal_digits(schema: Any) -> tuple[int, int] | None:
    """Returns the precision and the scale of a decimal. None if no column has them, or if they are not valid.
    Registries accept that, because Avro ignores such a logical type."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 1 <= precision <= MOST_DIGITS:
        return None
    return (precision, scale) if 0 <= scale <= precision else None


class AvroLimits:
    """The limits for values of a schema that fastavro has parsed. Raises `ValueError` for one that it should refuse."""

    @classmethod
    def of(cls, schema: Any) -> AvroLimits | None:
        """Returns None if no value can exceed the limits."""
        made = cls(schema)
        risky = made._is_recursive() or made._has_empty_items or made._has_empty_records
        return made if risky else None

    @classmethod
    def has_many_parts(cls, schema: Any) -> bool:
        """Whether it has more than `MAX_PARTS` parts, is recursive, or is nested too deeply to be counted."""
        try:
            return cls(schema)._count(schema, False, {}) > MAX_PARTS
        except RecursionError:
            return True

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._named: dict[str, Any] = {}
        self._refers: dict[str, set[str]] = {}
        self._has_empty_items = False
        arrays: list[Any] = []
        waiting: list[tuple[Any, str]] = [(schema, "")]
        waiting += [(one, "") for one in named_types(schema)]
        while waiting:
            one, within = waiting.pop()
            one = meant(one, {})
            if isinstance(one, str):
                self._refers.setdefault(within, set()).add(one)
                continue
            if isinstance(one, dict) and "name" in one:
                self._refers.setdefault(within, set()).add(one["name"])
                if one["name"] in self._named:
                    continue
                self._named[one["name"]] = one
                within = one["name"]
            if kind_of(one) == "array":
                arrays.append(one["items"])
            if kind_of(one) == "fixed" and not (type(one["size"]) is int and 0 <= one["size"] <= MAX_FIXED_BYTES):
                raise ValueError(f"a fixed type has the size {one['size']!r}")
            waiting += [(part, within) for part in parts_of(one)]
        self._empty: dict[str, bool] = {}
        self._has_empty_items = any(self._is_empty(items) for items in arrays)
        self._empty_parts: dict[str, int] = {}
        self._has_empty_records = any(
            self._count(name, True, self._empty_parts) > FEW_EMPTY_FIELDS for name in self._named
        )

    def check(self, data: bytes, at: int) -> None:  # noqa: C901, PLR0915 - a loop over all parts of a value
        """Checks the value at `at`. Raises `ValueError` if it exceeds a limit or does not match the schema."""
        empty = 0
        waiting: list[tuple[Any, int]] = [(self._schema, 1)]
        while waiting:
            one, depth = waiting.pop()
            if isinstance(one, _Block):
                if not one.left:
                    one.left, at = _count(data, at)
                    if not one.left:
                        continue
                    if one.is_empty:
                        empty += one.left * self._count(one.items, True, self._empty_parts)
                        one.left = 0  # they have no bytes
                        if empty > MAX_EMPTY_ITEMS:
                            raise ValueError(f"has more than {MAX_EMPTY_ITEMS} items without bytes")
                        waiting.append((one, depth))
                        continue
                one.left -= 1
                waiting += [(one, depth), (one.items, depth + 1)]
                if one.has_keys:
                    waiting.append(("string", depth))
                continue
            one = meant(one, self._named)
            kind = kind_of(one)
            if kind == "union":
                index, at = read_long(data, at)
                if not 0 <= index < len(one):
                    raise ValueError(f"there is no branch {index} of a union")
                waiting.append((one[index], depth))
            elif kind in _NUMBERS:
                _, at = read_long(data, at)
            elif kind in _TEXTS:
                size, at = read_long(data, at)
                at = _skip(data, at, size)
            elif kind == "fixed":
                at = _skip(data, at, one["size"])
            elif kind in _SIZES:
                at = _skip(data, at, _SIZES[kind])
            else:
                if depth > MAX_NESTING:
                    raise ValueError(f"is nested deeper than {MAX_NESTING} levels")
                if kind == "array":
                    waiting.append((_Block(one["items"], self._is_empty(one["items"])), depth))
                elif kind == "map":
                    waiting.append((_Block(one["values"], False, has_keys=True), depth))
                else:
                    parts = list(parts_of(one))
                    empty += sum(self._is_empty(part) for part in parts)
                    if empty > MAX_EMPTY_ITEMS + len(data):
                        raise ValueError(f"has more than {MAX_EMPTY_ITEMS} parts without bytes")
                    waiting += [(part, depth + 1) for part in reversed(parts)]

    def _is_recursive(self) -> bool:
        """Whether a name refers to itself. Names that refer to none of the rest are removed until none is left."""
        left = {name: refers & self._named.keys() for name, refers in self._refers.items() if name}
        while ends := [name for name, refers in left.items() if not refers & left.keys()]:
            for name in ends:
                del left[name]
        return bool(left)

    def _is_empty(self, one: Any) -> bool:
        """Whether its values take no bytes."""
        one = meant(one, self._named)
        kind = kind_of(one)
        if kind == "fixed":
            return bool(one["size"] == 0)
        if kind in ("record", "error"):
            name = one["name"]
            if name not in self._empty:
                self._empty[name] = False  # a record that always contains itself has no values
                self._empty[name] = all(self._is_empty(part) for part in parts_of(one))
            return self._empty[name]
        return kind == "null"

    def _count(self, one: Any, empty_only: bool, known: dict[str, int]) -> int:
        """Counts the types within it, each as often as it is used. `empty_only` counts only fields of records without
        bytes. It stops above `MAX_PARTS`."""
        one = meant(one, self._named)
        is_record = kind_of(one) in ("record", "error")
        if not is_record:
            parts = [] if empty_only else list(parts_of(one))
            return min(1 + sum(self._count(part, empty_only, known) for part in parts), MAX_PARTS + 1)
        name = one["name"]
        if name not in known:
            known[name] = 0 if empty_only else MAX_PARTS + 1  # a recursive record has no end
            parts = [part for part in parts_of(one) if not empty_only or self._is_empty(part)]
            known[name] = min(1 + sum(self._count(part, empty_only, known) for part in parts), MAX_PARTS + 1)
        return known[name]


class _Block:
    """Items of an array or a map. `left` is the number of items before the next count."""

    def __init__(self, items: Any, is_empty: bool, *, has_keys: bool = False) -> None:
        self.items = items
        self.is_empty = is_empty
        self.has_keys = has_keys
        self.left = 0


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Returns Avro's int or long, and where it ends. Raises `ValueError`."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number has no end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Reads the number of items of a block. After a negative number comes the size of the block."""
    count, at = read_long(data, at)
    if count < 0:
        _, at = read_long(data, at)
    return abs(count), at


def _skip(data: bytes, at: int, size: int) -> int:
    if size < 0 or at + size > len(data):
        raise ValueError(f"{size} bytes are not there")
    return at + size
