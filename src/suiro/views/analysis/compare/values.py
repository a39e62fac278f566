"""Compares two rows column by column: ignored columns, tolerances, and the names of differences.

A row is a JSON object. A nested object has columns such as `gate.letter` (in quotes if another column has that name).
Numbers are equal by value (1 equals 1.0), and booleans are not numbers. Tolerances apply to numbers: `0.01` is
absolute, `1%` is relative to the larger number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from suiro.errors import UsageError
from suiro.numerals import number

Columns = Mapping[str, Any]
VALUE_CHARS = 80


class _Absent:
    """The value of a column that a row does not have."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Numbers are equal if they differ by at most `absolute`, or by at most `relative` of the larger one."""

    absolute: float = 0.0
    relative: float = 0.0

    @classmethod
    def parse(cls, column: str, text: str) -> Tolerance:
        """`0.01`, or `1%`."""
        is_share = text.strip().endswith("%")
        try:
            most = number(text.strip().removesuffix("%"))
        except ValueError:
            most = -1.0
        if most < 0:
            raise UsageError(f"tolerance {column}={text!r} is no number from 0 on; give {column}=0.01 or {column}=1%")
        return cls(relative=most / 100) if is_share else cls(absolute=most)

    def holds(self, old: float, new: float) -> bool:
        """False if one number is an integer beyond all floats."""
        try:
            return abs(new - old) <= max(self.absolute, self.relative * max(abs(old), abs(new)))
        except OverflowError:
            return False

    def __str__(self) -> str:
        parts = [f"{self.absolute:g}"] if self.absolute else []
        parts += [f"{self.relative * 100:g}%"] if self.relative else []
        return " or ".join(parts) or "0"


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference in one column. `kind`: the relation of the two values in words. `size`: the distance of numbers."""

    column: str
    kind: str
    old: Any
    new: Any
    size: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparator:
    """How rows are compared. `ignored` columns, and all below them, do not count."""

    ignored: frozenset[str] = frozenset()
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)

    @classmethod
    def of(cls, tolerances: Mapping[str, Any] | None, ignored: Iterable[str]) -> Comparator:
        """`tolerances`: by column, a `Tolerance`, a number or text as `Tolerance.parse` reads it."""
        found = {
            column: each if isinstance(each, Tolerance) else Tolerance.parse(column, str(each))
            for column, each in (tolerances or {}).items()
        }
        return cls(ignored=frozenset(ignored), tolerances=found)

    def differences(self, old: Columns, new: Columns) -> list[Difference]:
        """Returns the differences by column name, none if the rows count as equal."""
        found = []
        for column in sorted(old.keys() | new.keys()):
            left, right = old.get(column, ABSENT), new.get(column, ABSENT)
            if left is right:
                continue
            if self.ignored and any(column == name or column.startswith(f"{name}.") for name in self.ignored):
                continue
            difference = self._difference(column, left, right)
            if difference is not None:
                found.append(difference)
        return found

    def _difference(self, column: str, old: Any, new: Any) -> Difference | None:
        if is_same(old, new):
            return None
        if is_number(old) and is_number(new):
            tolerance = self.tolerances.get(column)
            if tolerance is not None and tolerance.holds(old, new):
                return None
            if old != old or new != new:
                return Difference(column, "NaN in old" if old != old else "NaN in new", old, new)
            return Difference(column, "old < new" if old < new else "old > new", old, new, _apart(old, new))
        if old is ABSENT or new is ABSENT:
            kind = "only in new" if old is ABSENT else "only in old"
        elif old is None or new is None:
            kind = "null in old" if old is None else "null in new"
        elif _type_of(old) != _type_of(new):
            kind = f"{_type_of(old)} in old, {_type_of(new)} in new"
        else:
            kind = "differs"
        return Difference(column, kind, old, new)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(old: Any, new: Any) -> bool:
    """Compares items of lists, too, in which True equals 1 to Python. Without recursion: JSON may be nested deeply."""
    pending = [(old, new)]
    while pending:
        left, right = pending.pop()
        if left is right:
            continue
        if is_number(left) and is_number(right):
            same = left == right or (left != left and right != right)
        elif type(left) is not type(right):
            same = False
        elif isinstance(left, list):
            same = len(left) == len(right)
            pending += zip(left, right, strict=False)
        elif isinstance(left, dict):
            same = left.keys() == right.keys()
            pending += ((item, right[name]) for name, item in left.items() if same)
        else:
            same = left == right
        if not same:
            return False
    return True


def columns_of(value: str | None) -> dict[str, Any]:
    """Returns the columns of a row's JSON, none for a missing row."""
    return {} if value is None else flattened(json.loads(value))


def flattened(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {"value": value}
    found: dict[str, Any] = {}
    for name, item in value.items():
        nested = isinstance(item, dict) and item
        own = {f"{name}.{inner}": each for inner, each in flattened(item).items()} if nested else {name: item}
        for column, each in own.items():
            while column in found:  # a name of the object may have a dot, too
                column = f'"{column}"'
            found[column] = each
    return found


def shortened(value: Any, limit: int = VALUE_CHARS) -> Any:
    """Returns the value to show: long text and large lists are cut, and end with "…"."""
    if value is ABSENT:
        return None
    if isinstance(value, str):
        return value if len(value) <= limit else f"{value[: limit - 1]}…"
    if isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=False, default=str)
        return value if len(text) <= limit else f"{text[: limit - 1]}…"
    return value


def plain(value: Any) -> Any:
    """Returns the value for JSON: a missing column is null."""
    return None if value is ABSENT else shortened(value)


def _apart(old: float, new: float) -> float:
    try:
        return abs(new - old)
    except OverflowError:  # a whole number that is beyond all floats
        return math.inf


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return "true/false"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            return "list"
        case dict():
            return "object"
    return "null"
