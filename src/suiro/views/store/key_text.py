"""Keys as text in a path or a query: `UA/2013-07-04`.

What a part is read as depends on the types that its column has in the store: text stays what it is; a number, true,
false, null or a list is read as JSON. Where a column has both, a part is JSON if the column has values of that type;
then text goes in quotes, `"5"`. However a value is spelled, it is found: `1e0` and `1.0` where the column has
integers, `1` where it has 1.0. A column that has both has two keys, as Kafka has, `1` and `1.0`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from suiro.errors import UsageError
from suiro.views.store.rows import KeyTypes

_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def parts_of(text: str) -> list[str]:
    """Of a path that is still quoted: a part may hold a slash as %2F."""
    return [unquote(part) for part in text.split("/")]


def key_of(
    parts: Sequence[str], columns: Sequence[str], types: KeyTypes, *, is_prefix: bool = False
) -> tuple[Any, ...]:
    """The key, or its first parts. The last part of a prefix is a beginning, and stays text where it can be some."""
    if len(parts) > len(columns):
        raise UsageError(f"{len(parts)} parts of a key, {'/'.join(parts)}; the view has {', '.join(columns)}")
    last = len(parts) - 1
    return tuple(
        _part(part, name, kinds, stays_text=is_prefix and number == last)
        for number, (part, name, kinds) in enumerate(zip(parts, columns, types, strict=False))
    )


def key_of_values(values: Sequence[Any], columns: Sequence[str], types: KeyTypes) -> tuple[Any, ...]:
    """As `key_of`, of parts that came as JSON; text is what it would be in a path."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    return key_of(texts, columns, types)


def _part(part: str, column: str, kinds: frozenset[str], *, stays_text: bool) -> Any:
    if kinds <= {"string"} or (stays_text and "string" in kinds):
        return part
    try:
        value = json.loads(part)
        kind = _NAMES.get(type(value), "nested")
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
