"""Reads a table's row by key from any kind of store. Joins read the other side with it."""

from __future__ import annotations

from typing import Any

from suiro.streams.records import Windowed


def row_of(store: Any, key: Any) -> tuple[Any, int] | None:
    """The row's value and timestamp. Rows of windowed tables have `Windowed` keys."""
    match store.spec.kind:
        case "window":
            assert isinstance(key, Windowed)
            found: tuple[Any, int] | None = store.get_with_timestamp(key.key, key.start)
        case "session":
            assert isinstance(key, Windowed)
            value = store.fetch_session(key.key, key.start, key.end)
            found = None if value is None else (value, key.end)
        case _:
            found = store.get_with_timestamp(key)
    return found
