"""Keys for dicts: 1, 1.0 and True are one key in a dict, and three in a topic."""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Hashable
from typing import Any

from suiro.streams.records import Windowed

_DOUBLE = struct.Struct(">d")
_BY_TEXT = (decimal.Decimal, datetime.datetime, datetime.time)
"""Equal ones may be written differently: 1 and 1.0, and a time of two zones."""


def is_same(one: Any, other: Any) -> bool:
    """Tells whether two keys are one key in a topic. If keys cannot be in a dict, it may miss that they are."""
    if one is other:  # most often
        return True
    try:
        return distinct(one) == distinct(other)
    except TypeError:
        return bool(one == other) and repr(one) == repr(other)


def distinct(key: Any) -> Hashable:
    """Returns an object for the key that is equal only for equal keys of the same types. Raises `TypeError` for a key
    that cannot be in a dict."""
    kind = type(key)
    if kind is str or kind is bytes or key is None:
        found: Hashable = key
    elif kind is Windowed:
        found = (Windowed, distinct(key.key), key.start, key.end)
    elif kind is tuple:
        found = (tuple, *map(distinct, key))
    elif kind is frozenset:
        found = (frozenset, frozenset(map(distinct, key)))
    elif kind is float:
        found = (float, _DOUBLE.pack(key))  # 0.0 and -0.0 are equal too
    elif kind in _BY_TEXT:
        found = (kind, str(key))
    else:
        hash(key)
        found = (kind, key)
    return found
