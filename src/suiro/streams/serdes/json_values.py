"""Python values to JSON and back, as the standard library's `json`, with msgspec where the result is the same.

Keys and rows of state are found, and records are sent to partitions, by these bytes, so they must not change. msgspec
writes numbers beyond 1e16 and below 1e-4 another way, NaN as null, and takes dates, bytes, sets and more, which are
refused here; so it is given only what `are_exact` has looked at, and `json` has the rest. In reading, what msgspec
refuses is read by `json` (a lone surrogate, 1e400), which also says what is wrong.

Written and read values are nested no deeper than `MAX_NESTING`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from types import NoneType
from typing import Any

import msgspec

from suiro.foundation.nesting import MAX_NESTING, TooDeepError, is_too_deep, parse_json

_decode = msgspec.json.Decoder().decode
write_text = msgspec.json.Encoder(order="sorted").encode
"""Writes a value without checking it: for texts, and for values that are known to be exact."""
_WRITER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

_ATOMS = frozenset({str, int, bool, NoneType})
_NO_ATOMS = frozenset({float, dict, list})
_LEVELS = 16
"""Deeper values are written by `json`: looking at them level by level would not end in one that holds itself."""
_AT_ONCE = 256
"""Values that are looked at together: one that is not exact sends no more than these to `json`."""
LEAST, BEYOND = 1e-4, 1e16
"""Floats from here to there are written without an exponent by both."""


def read_json(data: bytes) -> Any:
    """Raises `ValueError`."""
    try:
        value = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return parse_json(data, allow_nan=False)
    # Most values are so short, or open so few, that they need no closer look.
    if len(data) > MAX_NESTING and data.count(b"[") + data.count(b"{") > MAX_NESTING and is_too_deep(value):
        raise TooDeepError
    return value


def write_json(value: Any) -> bytes:
    """Raises `ValueError` or `TypeError`. One value is written sooner than it is looked at."""
    try:
        data = _WRITER.encode(value).encode()
    except RecursionError:
        raise TooDeepError from None
    if data.count(b"[") + data.count(b"{") > MAX_NESTING and is_too_deep(value):
        raise TooDeepError
    return data


def write_block(
    values: Sequence[Any], before: bytes = b"", other: Callable[[Any], bytes] | None = None
) -> list[bytes | None]:
    """Returns the bytes of values; None stays None. `before`: bytes in front of each. `other`: writes values that are
    not exact, with what stands in front; by default `write_json`. Raises as these do."""
    found: list[bytes | None] = []
    for start in range(0, len(values), _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        if are_exact(part):
            found += [None if value is None else before + write_text(value) for value in part]
        else:
            write = other or write_json
            found += [None if value is None else write(value) for value in part]
    return found


def are_exact(values: Sequence[Any]) -> bool:
    """Tells whether msgspec writes the same bytes for the values as `json` does. The values are checked level by level,
    each level in C."""
    dicts: list[dict[Any, Any]] = []
    lists: list[Sequence[Any]] = [values]
    for _ in range(_LEVELS):
        kinds = set(map(type, _items(dicts, lists))) - _ATOMS
        if not kinds <= _NO_ATOMS:
            return False
        if float in kinds and not all(map(_has_no_exponent, {it for it in _items(dicts, lists) if type(it) is float})):
            return False
        kinds.discard(float)
        if not kinds:
            return True
        dicts, lists = (
            _distinct(dict, dicts, lists) if dict in kinds else [],
            _distinct(list, dicts, lists) if list in kinds else [],
        )
        if not set(map(type, chain.from_iterable(dicts))) <= {str}:
            return False
    return False


def _items(dicts: list[dict[Any, Any]], lists: list[Sequence[Any]]) -> Iterator[Any]:
    """Iterates over their items, in C."""
    return chain(chain.from_iterable(map(dict.values, dicts)), chain.from_iterable(lists))


def _distinct(kind: type, dicts: list[dict[Any, Any]], lists: list[Sequence[Any]]) -> list[Any]:
    """Returns each object once. A list that holds itself ten times would otherwise become ten, a hundred, ..."""
    return list({id(it): it for it in _items(dicts, lists) if type(it) is kind}.values())


def _has_no_exponent(number: float) -> bool:
    return LEAST <= number < BEYOND or number == 0.0 or -BEYOND < number <= -LEAST
