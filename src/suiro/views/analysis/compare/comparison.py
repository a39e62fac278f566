"""Compares two versions of a view, row by row, as of two cuts that reflect the same input.

Keys are divided into buckets, the same ranges of keys in both stores. The database computes a digest of each bucket,
which has the sum of its rows' hashes. A bucket with equal digests is equal, and its rows are not read. The rows of one
other bucket of each store are in memory at a time. Differences are counted by column and by pattern (which columns
differ, and how), with a few examples of each. So memory does not grow with the number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from suiro.errors import UsageError
from suiro.views.analysis.compare.values import Comparator, Difference, Tolerance, columns_of, shortened
from suiro.views.cuts import Cut
from suiro.views.store.rows import Row
from suiro.views.store.tables import Store

EXAMPLES = 3
PATTERNS_EXPLAINED = 20
PATTERNS_MAX = 200
KINDS_MAX = 20
COLUMNS_MAX = 1_000
"""A map may have any number of names. Further columns are not listed, but their rows are counted."""
PATTERN_COLUMNS_MAX = 50
"""Further columns count as a single one of the pattern, "7 more columns"."""
SMALLEST_DECADE, LARGEST_DECADE = -12, 18
LARGEST_SIZE = 1e300
"""Larger differences are not added up, so that the sum stays finite."""


@dataclass(slots=True, kw_only=True)
class OnlyThere:
    """The rows that only one side has: how many, and a few of them."""

    rows: int = 0
    examples: list[tuple[tuple[Any, ...], Any]] = field(default_factory=list)
    """Key and value, shortened."""

    def add(self, row: Row) -> None:
        self.rows += 1
        if self.rows <= EXAMPLES:
            self.examples.append((row.key, shortened(columns_of(row.value), 240)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`near`: rows that are equal only because of tolerances or ignored columns. `equal` includes them."""

    key: tuple[str, ...]
    old_version: int
    new_version: int
    old_cut: Cut
    new_cut: Cut
    equal: int
    near: int
    differing: int
    only_old: OnlyThere
    only_new: OnlyThere
    columns: tuple[ColumnDifferences, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    """The pattern with the most rows first."""
    patterns_left_out: int = 0
    """The rows of patterns beyond `PATTERNS_MAX`."""
    ignored: tuple[str, ...] = ()
    tolerances: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The rows of both versions, each key once."""
        return self.equal + self.unequal

    @property
    def unequal(self) -> int:
        return self.differing + self.only_old.rows + self.only_new.rows

    @property
    def share(self) -> float:
        """The share of rows that differ or that only one version has, 0 to 1."""
        return self.unequal / self.rows if self.rows else 0.0

    def example_keys(self) -> list[tuple[Any, ...]]:
        """Returns keys of a few rows of each pattern, the largest pattern first; then of rows that one side lacks."""
        found = [example.key for pattern in self.patterns[:PATTERNS_EXPLAINED] for example in pattern.examples]
        return found + [key for side in (self.only_old, self.only_new) for key, _ in side.examples]

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        found["old_cut"], found["new_cut"] = self.old_cut.to_json(), self.new_cut.to_json()
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Comparison:
        cuts = {name: Cut.from_json(data[name]) for name in ("old_cut", "new_cut")}
        return msgspec.convert({**data, **cuts}, cls)


def compare(
    old: Store,
    new: Store,
    *,
    old_cut: Cut,
    new_cut: Cut,
    tolerances: Mapping[str, Tolerance | float | str] | None = None,
    ignored: Iterable[str] = (),
) -> Comparison:
    """Compares two stores as of two cuts that meet; `common_cut` finds such cuts."""
    if not old_cut.meets(new_cut):
        raise UsageError(
            f"cut {old_cut.number} of version {old.spec.version} and cut {new_cut.number} of version "
            f"{new.spec.version} do not reflect the same input records, so every difference would mean nothing. Take "
            "the newest cut that both have (common_cut), or wait until they meet"
        )
    comparator = Comparator.of(tolerances, ignored)
    # The bounds of both: in a range where one store has few rows or none, the other may have any number.
    bounds = tuple(sorted({*old.bucket_bounds(), *new.bucket_bounds()}))
    digests = zip(old.bucket_digests(bounds, old_cut.number), new.bucket_digests(bounds, new_cut.number), strict=True)
    equal = near = 0
    only_old, only_new = OnlyThere(), OnlyThere()
    tally = Tally(examples=EXAMPLES)
    for bucket, (digest, other_digest) in enumerate(digests):
        if digest == other_digest:
            equal += digest.rows
            continue
        others = {row.place: row for row in new.bucket_rows(bucket, bounds, new_cut.number)}
        for row in old.bucket_rows(bucket, bounds, old_cut.number):
            other = others.pop(row.place, None)
            if other is None:
                only_old.add(row)
            elif row.hash == other.hash:
                equal += 1
            elif differences := comparator.differences(columns_of(row.value), columns_of(other.value)):
                tally.add(row.key, differences)
            else:
                equal += 1
                near += 1
        for row in others.values():
            only_new.add(row)
    return Comparison(
        key=old.spec.key,
        old_version=old.spec.version,
        new_version=new.spec.version,
        old_cut=old_cut,
        new_cut=new_cut,
        equal=equal,
        near=near,
        differing=tally.rows,
        only_old=only_old,
        only_new=only_new,
        columns=tally.columns(),
        patterns=tally.patterns(),
        patterns_left_out=tally.left_out,
        ignored=tuple(sorted(comparator.ignored)),
        tolerances={column: str(each) for column, each in sorted(comparator.tolerances.items())},
    )


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
