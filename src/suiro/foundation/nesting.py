"""Parses JSON from untrusted senders, and refuses what is nested too deeply.

A level of nesting costs a sender two bytes, and a program that walks the value a frame of its stack. The limit is far
above what data has and far below what Python's stack holds, so an accepted value can be written, copied and compared.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

MAX_NESTING = 500
"""Levels of arrays and objects in JSON; levels of elements in a record of XML."""

MAX_VALUES = 300_000
"""Values of JSON in the request of a stranger, or in the answer of another server."""
_BEFORE_VALUES = tuple(rb", [ { \u002c \u005b \u007b".split())
"""A text that is JSON may have its commas and brackets as escapes."""
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
"""What may be half of a surrogate pair."""


class TooDeepError(ValueError):
    def __init__(self) -> None:
        super().__init__(f"is nested deeper than {MAX_NESTING} levels")


def parse_json(data: bytes | str, *, allow_nan: bool = True, allow_half_pairs: bool = True) -> Any:
    """Raises `ValueError` for what is no JSON, and `TooDeepError`, which is one. `allow_half_pairs`: texts may hold
    half of a surrogate pair (`"\\ud800"`), with which they have no UTF-8."""
    try:
        text = data if isinstance(data, str) else data.decode()
        value = (_READER if allow_nan else _STRICT_READER).decode(text)
    except RecursionError:
        raise TooDeepError from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    check_json(text, value, allow_half_pairs=allow_half_pairs)
    return value


def has_too_many_values(data: bytes) -> bool:
    """Whether JSON may have more than `MAX_VALUES` values. Those that its texts would have as JSON count, too, because
    a text may be a schema. Three bytes are a list, which takes 64 bytes, and no other thread runs while a parser makes
    all of them: for 16 MiB, that takes seconds."""
    if len(data) <= MAX_VALUES:
        return False
    return sum(map(data.lower().count, _BEFORE_VALUES)) > MAX_VALUES


def check_json(text: str, value: Any, *, allow_half_pairs: bool) -> None:
    """Check a value that was parsed elsewhere as `parse_json` does. Raises `ValueError`."""
    # Most values open so few that they need no closer look.
    if text.count("[") + text.count("{") > MAX_NESTING and is_too_deep(value):
        raise TooDeepError
    if not allow_half_pairs and _HALF_PAIR.search(text) is not None:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("holds half of a surrogate pair, which is no character") from None


def is_too_deep(value: Any) -> bool:
    """Whether a value has more than `MAX_NESTING` levels. Looks at level after level, without recursion."""
    level: list[Any] = [[value]]
    for _ in range(MAX_NESTING + 1):
        children = (one.values() if isinstance(one, dict) else one for one in level)
        level = [item for items in children for item in items if isinstance(item, list | tuple | dict)]
        if not level:
            return False
    return True


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_READER = json.JSONDecoder()
_STRICT_READER = json.JSONDecoder(parse_constant=_no_constant)
