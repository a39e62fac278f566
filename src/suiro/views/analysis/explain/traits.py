"""Finds fields by which some records differ from others: a field is null, always the same, or beyond a bound."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suiro.views.analysis.compare.values import ABSENT, flattened, is_number, is_same, shortened

TRAITS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """A property of all records of a group, and of `others` of the other records."""

    text: str
    others: int


def traits_of(values: Sequence[Any], others: Sequence[Any]) -> tuple[Trait, ...]:
    """Returns the traits that the fewest other records have, none that all others have. `values`: as the source's serde
    reads them."""
    if not values:
        return ()
    inside = [columns(value) for value in values]
    outside = [columns(value) for value in others]
    found = []
    for field in dict.fromkeys(name for each in inside[:200] for name in each):
        trait = _trait(
            field, [each.get(field, ABSENT) for each in inside], [each.get(field, ABSENT) for each in outside]
        )
        if trait is not None and (not outside or trait.others < len(outside)):
            found.append(trait)
    for field in dict.fromkeys(name for each in outside[:200] for name in each):
        if all(field not in each for each in inside):
            count = sum(field not in each for each in outside)
            if count < len(outside):
                found.append(Trait(text=f"{field} is not there", others=count))
    found.sort(key=lambda trait: trait.others)
    if not found or (outside and found[0].others * 2 > len(outside)):
        return ()
    # Traits of many others say little beside traits of few.
    limit = max(found[0].others * 2, len(outside) // 100)
    return tuple(trait for trait in found if trait.others <= limit)[:TRAITS_MAX]


def columns(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {"value": None}
    return flattened(value)


def _trait(field: str, inside: Sequence[Any], outside: Sequence[Any]) -> Trait | None:
    first = inside[0]
    if all(is_same(value, first) for value in inside):
        if len(inside) == 1 and first is not None and not isinstance(first, bool):
            return None  # a single record has the same value everywhere
        count = sum(is_same(value, first) for value in outside)
        name = "null" if first is None else json.dumps(shortened(first), ensure_ascii=False, default=str)
        return Trait(text=f"{field} {name}" if first is None else f"{field} = {name}", others=count)
    if not outside or not all(is_number(value) for value in inside):
        return None
    numbers = [value for value in outside if is_number(value)]
    if not numbers:
        return None
    low, high = min(inside), max(inside)
    if low > max(numbers):
        return Trait(text=f"{field} >= {_figure(low)}", others=0)
    if high < min(numbers):
        return Trait(text=f"{field} <= {_figure(high)}", others=0)
    return None


def _figure(number: float) -> str:
    """Formats all digits, because the sentence may be false for a rounded bound."""
    return repr(number).removesuffix(".0")
