"""Keys as text in a path or a query: `UA/2013-07-04`.

The types that a column has in the store decide how a part is read. If the column has only text, a part is text. If it
has only other values, a part is JSON. If it has both, a part is JSON if the column has values of that type; to look for
such a text, put it in quotes: `"5"`. Every spelling of a value finds it: `1e0` and `1.0` in a column of integers, `1`
in a column with 1.0. In a column with integers and other numbers, `1` and `1.0` are two keys, as in Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from suiro.errors import UsageError
from suiro.views.store.rows import JSON_TYPES, KeyTypes


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
        _part(part, name, kinds, stays_text=is_prefix and number == last)
        for number, (part, name, kinds) in enumerate(zip(parts, columns, types, strict=False))
    )


def key_of_values(values: Sequence[Any], columns: Sequence[str], types: KeyTypes) -> tuple[Any, ...]:
    """As `key_of`, for parts that are JSON values. Text is read as in a path."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    return key_of(texts, columns, types)


def _part(part: str, column: str, kinds: frozenset[str], *, stays_text: bool) -> Any:
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
