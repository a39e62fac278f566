"""Rows of stores as text, for people: keys and values are JSON where they can be, and cut where they are long."""

from __future__ import annotations

import json
from typing import Any

from suiro.streams.records import Windowed

TEXT_CHARS = 4 * 1024


def row_of(key: Any, value: Any) -> dict[str, Any]:
    window = None
    if isinstance(key, Windowed):
        key, window = key.key, [key.start, key.end]
    return {"key": text_of(key), "value": text_of(value), "window": window}


def text_of(value: Any) -> str:
    """JSON where it is that. Half of a surrogate pair, which JSON may have in it, is shown by its number: UTF-8 has no
    form for it."""
    if isinstance(value, bytes):
        return value[: TEXT_CHARS // 2].hex()
    try:
        text = value if isinstance(value, str) else _json(value)
    except RecursionError:
        return f"({type(value).__name__}, nested too deeply to be shown)"
    return text[:TEXT_CHARS].encode("utf-8", "backslashreplace").decode()


def _json(value: Any) -> str:
    try:
        return json.dumps(value, default=str, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)
