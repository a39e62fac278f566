"""Groups the records of a key by their effect on the row in both versions, and finds the traits of a group.

The effect of a record in one version is the row before and after it, column by column. The growth of a count or a sum
depends on the record only, so the two versions can be compared. The growth of a mean depends on the row: once the rows
differ, the mean changes differently with every record. So only columns count in which equal changes occur again after
the first difference.

A trait is a field by which records differ from others: it is null, always the same, or beyond a bound.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suiro.lineage import Place
from suiro.views.analysis.compare.values import ABSENT, Columns, flattened, is_number, is_same, shortened

CHANCE = 0.02
"""The share of records by which the means of two versions may happen to change equally."""
TRAITS_MAX = 3


@dataclass(frozen=True, slots=True)
class RowEffect:
    """The effect of one record on the row in one version. `before` and `after` are equal if it has none."""

    before: Columns
    after: Columns
    changes: Mapping[str, tuple[Any, Any]]
    """The columns that have changed: (before, after)."""

    @classmethod
    def of(cls, before: Columns, after: Columns) -> RowEffect:
        changes = {}
        for column in after if before.keys() == after.keys() else sorted(before.keys() | after.keys()):
            pair = (before.get(column, ABSENT), after.get(column, ABSENT))
            if not is_same(*pair):
                changes[column] = pair
        return cls(before, after, changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of all records of a group on one column. `least`, `most`: the smallest and largest change of a
    number."""

    column: str
    what: str
    """grows, shrinks, stays, is set, is removed, becomes null, changes"""
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Records of one topic with the same effects, which differ between the versions. No effects: unchanged."""

    topic: str
    old: tuple[Effect, ...]
    new: tuple[Effect, ...]
    places: tuple[Place, ...]


def sort_records(
    places: Sequence[Place], old: Mapping[Place, RowEffect], new: Mapping[Place, RowEffect]
) -> tuple[list[Group], list[Place], list[Place]]:
    """Returns the groups, the largest first; records with the same effect in both versions; and records without an
    effect of their own, which were read when others changed the row, such as the rows of a table. `places`: in the
    order of the input."""
    read = [place for place in places if place not in old and place not in new]
    acted = [place for place in places if place in old or place in new]
    columns = _distinguishing(acted, old, new)
    parted = [place for place in acted if not _alike(old.get(place), new.get(place), columns)]
    if not parted:
        columns = sorted({column for side in (old, new) for effect in side.values() for column in effect.changes})
        parted = [place for place in acted if not _alike(old.get(place), new.get(place), columns)]
    found: dict[tuple[Any, ...], list[Place]] = {}
    for place in parted:
        name = (place[0], _signs(old.get(place), columns), _signs(new.get(place), columns))
        found.setdefault(name, []).append(place)
    groups = [
        Group(
            topic=topic,
            old=_effects(old_signs, [old[place] for place in members if place in old]),
            new=_effects(new_signs, [new[place] for place in members if place in new]),
            places=tuple(members),
        )
        for (topic, old_signs, new_signs), members in found.items()
    ]
    apart = set(parted)
    groups.sort(key=lambda group: -len(group.places))
    return groups, [place for place in acted if place not in apart], read


def _distinguishing(
    places: Sequence[Place], old: Mapping[Place, RowEffect], new: Mapping[Place, RowEffect]
) -> list[str]:
    """Returns the columns that show whether a record has the same effect in both versions."""
    both = [(old[place].changes, new[place].changes) for place in places if place in old and place in new]
    names = {column for left, right in both for column in (*left, *right)}
    found = []
    for column in sorted(names):
        same = [
            _same_change(left.get(column), right.get(column))
            for left, right in both
            if column in left or column in right
        ]
        after = same[same.index(False) + 1 :] if False in same else []
        if all(same) or sum(after) > CHANCE * len(after):
            found.append(column)
    return found


def _alike(old: RowEffect | None, new: RowEffect | None, columns: Sequence[str]) -> bool:
    left = {} if old is None else old.changes
    right = {} if new is None else new.changes
    if not left or not right:
        return not left and not right
    return all(_same_change(left.get(column), right.get(column)) for column in columns)


def _same_change(old: tuple[Any, Any] | None, new: tuple[Any, Any] | None) -> bool:
    if old is None or new is None:
        return old is None and new is None
    if type(old[0]) is type(old[1]) is type(new[0]) is type(new[1]) is int and old[1] - old[0] == new[1] - new[0]:
        return True  # most changes are those of counts and sums
    left, right = _growth(old), _growth(new)
    if left is None or right is None:
        return left is None and right is None and (old[1] == new[1] or old[0] != new[0])
    scale = max(abs(part) for part in (*old, *new) if is_number(part))
    return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9 * scale)


def _growth(change: tuple[Any, Any]) -> float | None:
    """Returns the growth of a number; a new number grows from 0. None for other values, and beyond all floats."""
    before, after = change
    if not is_number(after) or not (is_number(before) or before is ABSENT or before is None):
        return None
    try:
        return float(after) - float(before if is_number(before) else 0)
    except OverflowError:
        return None


def _signs(effect: RowEffect | None, columns: Sequence[str]) -> tuple[tuple[str, str], ...]:
    if effect is None:
        return ()
    changes = effect.changes
    if not changes:
        return ()
    # A number that shows the difference is listed even if it stays: "count +1, sum +0".
    telling = {column: "stays" for column in columns if is_number(effect.after.get(column))}
    found = telling | {column: _sign(change) for column, change in changes.items() if column in columns}
    if all(sign == "stays" for sign in found.values()):
        found |= {column: _sign(change) for column, change in changes.items()}
    return tuple(sorted(found.items()))


def _sign(change: tuple[Any, Any]) -> str:
    growth = _growth(change)
    if growth is not None:
        return "grows" if growth > 0 else "shrinks" if growth < 0 else "is set"
    before, after = change
    if after is ABSENT or after is None:
        return "is removed" if after is ABSENT else "becomes null"
    return "is set" if before is ABSENT or before is None else "changes"


def _effects(signs: tuple[tuple[str, str], ...], row_effects: Sequence[RowEffect]) -> tuple[Effect, ...]:
    found = []
    for column, what in signs:
        growths = [
            growth
            for effect in row_effects
            if (growth := _growth((effect.before.get(column, ABSENT), effect.after.get(column, ABSENT)))) is not None
        ]
        has_size = bool(growths) and what in ("grows", "shrinks")
        found.append(
            Effect(
                column=column,
                what=what,
                least=min(growths) if has_size else None,
                most=max(growths) if has_size else None,
            )
        )
    return tuple(found)


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
    inside = [flattened(value) for value in values]
    outside = [flattened(value) for value in others]
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
