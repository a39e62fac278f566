"""Divides a sequence into parts of limited size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_parts(
    items: Iterable[T], size: Callable[[T], int], *, max_size: int, max_items: int | None = None
) -> Iterator[list[T]]:
    """Yield the items in order, as many together as a part may have. One that is larger than that is alone."""
    part: list[T] = []
    total = 0
    for item in items:
        own = size(item)
        if part and (total + own > max_size or len(part) == max_items):
            yield part
            part, total = [], 0
        part.append(item)
        total += own
    if part:
        yield part
