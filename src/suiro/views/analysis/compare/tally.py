"""Counts differences by column and by pattern, with sizes and a few examples, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suiro.views.analysis.compare.values import Difference, shortened

PATTERNS_MAX = 200
KINDS_MAX = 20
COLUMNS_MAX = 1_000
"""A map may have any number of names. Further columns are not listed, but their rows are counted."""
PATTERN_COLUMNS_MAX = 50
"""Further columns count as a single one of the pattern, "7 more columns"."""
SMALLEST_DECADE, LARGEST_DECADE = -12, 18
LARGEST_SIZE = 1e300
"""Larger differences are not added up, so that the sum stays finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One way in which a column differs. The size of a difference is the distance of two numbers. `decades`: pairs of a
    power of ten and the number of differences from this power up to the next."""

    kind: str
    rows: int
    smallest: float | None = None
    largest: float | None = None
    total: float | None = None
    decades: tuple[tuple[int, int], ...] = ()
    largest_at: tuple[Any, ...] | None = None
    """The key of the row with the largest difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDifferences:
    column: str
    rows: int
    kinds: tuple[Kind, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A row that differs, and the columns that differ: (old, new), shortened."""

    key: tuple[Any, ...]
    columns: Mapping[str, tuple[Any, Any]]


@dataclass(slots=True, kw_only=True)
class Pattern:
    """Rows that differ in the same columns and in the same way."""

    columns: tuple[tuple[str, str], ...]
    rows: int = 0
    examples: list[Example] = field(default_factory=list)

    @property
    def name(self) -> str:
        return ", ".join(f"{column} {kind}" for column, kind in self.columns)


class Tally:
    def __init__(self, *, examples: int) -> None:
        self.rows = 0
        self.left_out = 0
        self._examples = examples
        self._kinds: dict[str, dict[str, _Sizes]] = {}
        self._patterns: dict[tuple[tuple[str, str], ...], Pattern] = {}

    def add(self, key: tuple[Any, ...], differences: Sequence[Difference]) -> None:
        self.rows += 1
        for each in differences:
            if each.column not in self._kinds and len(self._kinds) >= COLUMNS_MAX:
                continue
            kinds = self._kinds.setdefault(each.column, {})
            name = each.kind if each.kind in kinds or len(kinds) < KINDS_MAX else "differs"
            kinds.setdefault(name, _Sizes()).add(key, each.size)
        shown = differences[:PATTERN_COLUMNS_MAX]
        pattern = tuple((each.column, each.kind) for each in shown)
        if len(differences) > len(shown):
            pattern += ((f"{len(differences) - len(shown):,} more columns", "differ"),)
        seen = self._patterns.get(pattern)
        if seen is None:
            if len(self._patterns) >= PATTERNS_MAX:
                self.left_out += 1
                return
            seen = self._patterns[pattern] = Pattern(columns=pattern)
        seen.rows += 1
        if len(seen.examples) < self._examples:
            seen.examples.append(
                Example(
                    key=key,
                    columns={each.column: (shortened(each.old), shortened(each.new)) for each in shown},
                )
            )

    def columns(self) -> tuple[ColumnDifferences, ...]:
        found = [
            ColumnDifferences(
                column=column,
                rows=sum(sizes.rows for sizes in kinds.values()),
                kinds=tuple(
                    sizes.as_kind(kind)
                    for kind, sizes in sorted(kinds.items(), key=lambda item: (-item[1].rows, item[0]))
                ),
            )
            for column, kinds in self._kinds.items()
        ]
        return tuple(sorted(found, key=lambda each: (-each.rows, each.column)))

    def patterns(self) -> tuple[Pattern, ...]:
        return tuple(sorted(self._patterns.values(), key=lambda each: (-each.rows, each.columns)))


@dataclass(slots=True)
class _Sizes:
    rows: int = 0
    smallest: float = math.inf
    largest: float = -math.inf
    total: float = 0.0
    largest_at: tuple[Any, ...] | None = None
    decades: dict[int, int] = field(default_factory=dict)

    def add(self, key: tuple[Any, ...], size: float | None) -> None:
        self.rows += 1
        if size is None or not size <= LARGEST_SIZE:
            return
        self.total += size
        self.smallest = min(self.smallest, size)
        if size > self.largest:
            self.largest, self.largest_at = size, key
        power = math.floor(math.log10(size)) if size > 0 else SMALLEST_DECADE
        power = min(max(power, SMALLEST_DECADE), LARGEST_DECADE)
        self.decades[power] = self.decades.get(power, 0) + 1

    def as_kind(self, kind: str) -> Kind:
        if self.largest_at is None:
            return Kind(kind=kind, rows=self.rows)
        return Kind(
            kind=kind,
            rows=self.rows,
            smallest=self.smallest,
            largest=self.largest,
            total=self.total,
            decades=tuple(sorted(self.decades.items())),
            largest_at=self.largest_at,
        )
