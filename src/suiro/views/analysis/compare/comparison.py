"""Compares two versions of a view, row by row, as of two cuts that reflect the same input.

Keys are divided into buckets, the same ones in both stores. A bucket with equal digests is equal, and its rows are not
read. The rows of one other bucket of each store are in memory at a time. Differences are counted by column and by
pattern (which columns differ, and how), with a few examples of each. So memory does not grow with the number of rows.
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
from suiro.views.store.buckets import Buckets, same_buckets
from suiro.views.store.places import place_of
from suiro.views.store.tables import Store

EXAMPLES = 3
PATTERNS_EXPLAINED = 20
Row = tuple[tuple[Any, ...], int, str]
"""Key, hash, value as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlyThere:
    """The rows that only one side has: how many, and a few of them."""

    rows: int = 0
    examples: tuple[tuple[tuple[Any, ...], Any], ...] = ()
    """Key and value, shortened."""


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

    @property
    def is_equal(self) -> bool:
        return self.unequal == 0

    def example_keys(self) -> list[tuple[Any, ...]]:
        """Returns keys of a few rows of each pattern, the largest pattern first; then of rows that one side lacks."""
        found = [
            example.key for pattern in self.patterns[:PATTERNS_EXPLAINED] for example in pattern.examples
        ]
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
    if old.spec.key != new.spec.key:
        raise UsageError(
            f"version {old.spec.version} of view {old.spec.view} has the key ({', '.join(old.spec.key)}), version "
            f"{new.spec.version} has ({', '.join(new.spec.key)}): there are no rows of the same key to compare. Deploy "
            "what has another key as a view of another name"
        )
    if not old_cut.meets(new_cut):
        raise UsageError(
            f"cut {old_cut.number} of version {old.spec.version} and cut {new_cut.number} of version "
            f"{new.spec.version} do not reflect the same input records, so every difference would mean nothing. Take "
            "the newest cut that both have (common_cut), or wait until they meet"
        )
    old_buckets, new_buckets = same_buckets(old, new)
    return compare_buckets(
        old_buckets,
        new_buckets,
        key=old.spec.key,
        versions=(old.spec.version, new.spec.version),
        cuts=(old_cut, new_cut),
        comparator=Comparator.of(tolerances, ignored),
    )


def compare_buckets(
    old: Buckets,
    new: Buckets,
    *,
    key: tuple[str, ...],
    versions: tuple[int, int],
    cuts: tuple[Cut, Cut],
    comparator: Comparator,
) -> Comparison:
    old_cut, new_cut = cuts
    old_digests, new_digests = old.bucket_digests(old_cut.number), new.bucket_digests(new_cut.number)
    none = (0, 0)
    equal = near = 0
    only_old, only_new = _Alone(), _Alone()
    tally = Tally(examples=EXAMPLES)
    for bucket in sorted(old_digests.keys() | new_digests.keys()):
        digest = old_digests.get(bucket, none)
        if digest == new_digests.get(bucket, none):
            equal += digest[0]
            continue
        others = {place_of(row[0]): row for row in new.bucket_rows(bucket, new_cut.number)}
        for row in old.bucket_rows(bucket, old_cut.number):
            other = others.pop(place_of(row[0]), None)
            if other is None:
                only_old.add(row)
            elif row[1] == other[1]:
                equal += 1
            elif differences := comparator.differences(columns_of(row[2]), columns_of(other[2])):
                tally.add(row[0], differences)
            else:
                equal += 1
                near += 1
        for row in others.values():
            only_new.add(row)
    return Comparison(
        key=key,
        old_version=versions[0],
        new_version=versions[1],
        old_cut=old_cut,
        new_cut=new_cut,
        equal=equal,
        near=near,
        differing=tally.rows,
        only_old=only_old.found(),
        only_new=only_new.found(),
        columns=tally.columns(),
        patterns=tally.patterns(),
        patterns_left_out=tally.left_out,
        ignored=tuple(sorted(comparator.ignored)),
        tolerances={column: str(each) for column, each in sorted(comparator.tolerances.items())},
    )


class _Alone:
    """Collects the rows that only one side has."""

    def __init__(self) -> None:
        self._rows = 0
        self._examples: list[Row] = []

    def add(self, row: Row) -> None:
        self._rows += 1
        if len(self._examples) < EXAMPLES:
            self._examples.append(row)

    def found(self) -> OnlyThere:
        examples = ((key, shortened(columns_of(value), 240)) for key, _, value in self._examples)
        return OnlyThere(rows=self._rows, examples=tuple(examples))
