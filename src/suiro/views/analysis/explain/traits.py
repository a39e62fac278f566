"""Finds a field by which some records differ from others: it is null, always the same, or beyond a bound."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suiro.views.analysis.compare.values import ABSENT, flattened, is_number, shortened

TRAITS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """True of all records of a group, and of `others` of the records that are not in it."""

    text: str
    others: int


def traits_of(values: Sequence[Any], others: Sequence[Any]) -> tuple[Trait, ...]:
    """The most telling ones; none that is true of all the others too. Values as the source's serde gives them."""
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
    # What is true of many others says little beside what is true of few.
    limit = max(found[0].others * 2, len(outside) // 100)
    return tuple(trait for trait in found if trait.others <= limit)[:TRAITS_MAX]


def columns(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {"value": None}
    return flattened(value)


def _trait(field: str, inside: Sequence[Any], outside: Sequence[Any]) -> Trait | None:
    first = inside[0]
    if all(_same(value, first) for value in inside):
        if len(inside) == 1 and first is not None and not isinstance(first, bool):
            return None  # of a single record everything is the same
        count = sum(_same(value, first) for value in outside)
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
    """All of it: of a bound that is rounded the sentence may not be true."""
    return repr(number).removesuffix(".0")


def _same(left: Any, right: Any) -> bool:
    return left is right or (type(left) is type(right) and bool(left == right))
