"""Compares two versions of a view, row by row, as of two cuts that reflect the same input.

Keys are divided into buckets, the same ranges of keys in both stores. The database computes a digest of each bucket,
which has the sum of its rows' hashes. A bucket with equal digests is equal, and its rows are not read. The rows of one
other bucket of each store are in memory at a time. Differences are counted by column and by pattern (which columns
differ, and how), with a few examples of each. So memory does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from suiro.errors import UsageError
from suiro.views.analysis.compare.tally import ColumnDifferences, Pattern, Tally
from suiro.views.analysis.compare.values import Comparator, Tolerance, columns_of, shortened
from suiro.views.cuts import Cut
from suiro.views.store.rows import Row
from suiro.views.store.tables import Store

EXAMPLES = 3
PATTERNS_EXPLAINED = 20


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
