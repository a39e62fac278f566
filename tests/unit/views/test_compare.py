"""Comparing two versions: what is counted, how differences are called, and what it looks like."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from suiro.errors import UsageError
from suiro.foundation.nesting import MAX_NESTING
from suiro.views.analysis.compare.comparison import Comparison, compare
from suiro.views.analysis.compare.text import text_of
from suiro.views.analysis.compare.values import Tolerance
from suiro.views.control.journal import MAX_BATCH_BYTES
from suiro.views.cuts import Cut
from suiro.views.store import open_store
from suiro.views.store.keys import place_of
from suiro.views.store.rows import Digest, Row

Rows = Mapping[tuple[Any, ...], Any]
BUCKETS = 4


@dataclass(frozen=True, kw_only=True)
class Spec:
    view: str = "delays"
    version: int = 1
    key: tuple[str, ...] = ("carrier",)
    serve: str = "sqlite"
    search: tuple[str, ...] = ()
    history_ms: int = 3_600_000
    journal_id: str = ""


class InBuckets:
    """A store of a test: remembers which buckets were read."""

    def __init__(self, rows: Rows, version: int = 1) -> None:
        self.spec = Spec(version=version)
        self._rows = {key: json.dumps(value, sort_keys=True) for key, value in rows.items()}
        self.read: list[int] = []

    def bucket_bounds(self) -> tuple[bytes, ...]:
        return ()

    def bucket_digests(self, bounds: Any, as_of: int) -> Iterator[Digest]:
        for bucket in range(BUCKETS):
            rows = list(self._in(bucket))
            yield Digest(len(rows), sum(row.hash for row in rows))

    def bucket_rows(self, bucket: int, bounds: Any, as_of: int) -> list[Row]:
        self.read.append(bucket)
        return list(self._in(bucket))

    def _in(self, bucket: int) -> Iterator[Row]:
        for key, value in self._rows.items():
            if _bucket(key) == bucket:
                yield Row(place_of(key), key, value, hash((key, value)))


def _bucket(key: tuple[Any, ...]) -> int:
    return sum(str(key).encode()) % BUCKETS


def cut(number: int = 3, end: int = 1234) -> Cut:
    return Cut(number=number, inputs={("flights", 0): end}, outputs={}, time_ms=0)


def compared(old: Rows, new: Rows, *, ignored: tuple[str, ...] = (), **tolerances: Any) -> Comparison:
    sides: Any = InBuckets(old), InBuckets(new, version=2)
    found = compare(*sides, old_cut=cut(), new_cut=cut(9), tolerances=tolerances, ignored=ignored)
    again = Comparison.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found
    assert text_of(again) == text_of(found)
    return found


def test_what_is_equal_is_not_read() -> None:
    rows = {(f"C{n}",): {"n": n} for n in range(40)}
    old: Any = InBuckets(rows)
    new: Any = InBuckets(rows | {("C7",): {"n": 8}})
    found = compare(old, new, old_cut=cut(), new_cut=cut())
    assert (found.equal, found.differing) == (39, 1)
    assert old.read == new.read == [_bucket(("C7",))]


def test_differences_by_column_and_by_pattern() -> None:
    old = {(f"C{n}",): {"flights": 100 + n, "mean": 10.0, "name": "x"} for n in range(15)}
    new = {key: row | {"flights": row["flights"] - 5, "mean": 10.5 + key_number(key) / 10} for key, row in old.items()}
    old[("HA",)] = new[("HA",)] = {"flights": 7, "mean": None, "name": "y"}
    new[("C0",)] |= {"name": "z"}
    found = compared(old, new)
    assert (found.rows, found.equal, found.differing) == (16, 1, 15)
    assert [(each.column, each.rows) for each in found.columns] == [
        ("flights", 15),
        ("mean", 15),
        ("name", 1),
    ]
    (kind,) = found.columns[1].kinds
    assert (kind.kind, kind.rows) == ("old < new", 15)
    assert kind.smallest == pytest.approx(0.5)
    assert kind.largest == pytest.approx(1.9)
    assert kind.largest_at == ("C14",)
    both = ("flights", "old > new"), ("mean", "old < new")
    assert [(each.columns, each.rows) for each in found.patterns] == [(both, 14), ((*both, ("name", "differs")), 1)]
    text = text_of(found)
    assert "mean     v1 < v2 in 15 rows, by 0.5 to 1.9, 1.2 on average" in text
    assert "flights  v1 > v2 in 15 rows, by 5 each" in text
    assert "14 rows, 93.3 % of what differs: flights v1 > v2, mean v1 < v2" in text


def key_number(key: tuple[str, ...]) -> int:
    return int(key[0][1:])


def test_rows_that_one_side_has() -> None:
    found = compared({("A",): {"n": 1}, ("B",): {"n": 1}}, {("B",): {"n": 1}, ("C",): {"n": 2}, ("D",): {"n": 3}})
    assert (found.equal, found.only_old.rows, found.only_new.rows) == (1, 1, 2)
    assert found.only_old.examples == [(("A",), {"n": 1})]
    assert found.share == pytest.approx(3 / 4)
    assert found.example_keys() == [("A",), *(key for key, _ in found.only_new.examples)]
    assert "only in v1: 1 row that v2 does not have" in text_of(found)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (1, 2, "old < new"),
        (2.5, 1, "old > new"),
        (None, 1, "null in old"),
        (1, None, "null in new"),
        ("a", "b", "differs"),
        (True, False, "differs"),
        (True, 1, "true/false in old, number in new"),
        ("1", 1, "text in old, number in new"),
        ([1], [2], "differs"),
        (float("nan"), 1.0, "NaN in old"),
    ],
)
def test_how_a_difference_is_called(old: Any, new: Any, kind: str) -> None:
    (column,) = compared({("A",): {"c": old}}, {("A",): {"c": new}}).columns
    assert [each.kind for each in column.kinds] == [kind]


def test_a_column_that_only_one_side_has() -> None:
    found = compared({("A",): {"x": 1}}, {("A",): {"x": 1, "gate": {"letter": "B"}}})
    assert [(each.column, each.kinds[0].kind) for each in found.columns] == [("gate.letter", "only in new")]
    assert "gate.letter  only in v2 in 1 row" in text_of(found)


def test_equal_by_value() -> None:
    assert not compared({("A",): {"c": 1, "d": [1, 2]}}, {("A",): {"d": [1, 2], "c": 1.0}}).unequal
    assert not compared({("A",): {"c": float("nan")}}, {("A",): {"c": float("nan")}}).unequal
    assert compared({}, {}).share == 0.0


def test_tolerances_and_ignored_columns() -> None:
    old, new = {("A",): {"m": 100.0, "at": {"t": 1}}}, {("A",): {"m": 100.9, "at": {"t": 2}}}
    assert compared(old, new, ignored=("at",)).unequal
    found = compared(old, new, ignored=("at",), m="1%")
    assert (found.equal, found.near) == (1, 1)
    assert "tolerance m 1%; ignored at; 1 are equal only so" in text_of(found)
    assert not compared(old, new, ignored=("at",), m=1).unequal
    assert compared(old, new, ignored=("at",), m=0.5).unequal
    assert compared(old, new, m=1).unequal
    assert Tolerance.parse("m", "2.5%") == Tolerance(relative=0.025)
    for wrong in ("much", "-1", "nan", "%"):
        with pytest.raises(UsageError, match="tolerance m"):
            Tolerance.parse("m", wrong)


def test_examples_and_patterns_are_bounded() -> None:
    old = {(f"K{n}",): {f"c{n}": "x" * 1000} for n in range(500)}
    new = {(f"K{n}",): {f"c{n}": "y" * 1000} for n in range(500)}
    found = compared(old, new)
    assert found.differing == 500
    assert len(found.patterns) == 200
    assert found.patterns_left_out == 300
    assert all(
        len(value) <= 80 for p in found.patterns for e in p.examples for pair in e.columns.values() for value in pair
    )
    assert len(text_of(found).splitlines()) < 60


# -- over real stores ----------------------------------------------------------------------------------------------


def test_stores_are_compared_as_of_the_same_input(tmp_path: Path) -> None:
    stores = [open_store(Spec(version=number), folder(tmp_path, number)) for number in (1, 2)]
    old, new = stores
    with old, new:
        keys = [(f"C{n:05}",) for n in range(9_000)]
        old.apply(cut(0, 100), keys, [json.dumps({"n": n}) for n in range(9_000)])
        new.apply(cut(5, 100), keys, [json.dumps({"n": n + (n == 4_321)}) for n in range(9_000)])
        old.apply(cut(1, 200), keys[:10], ['{"n":-1}'] * 10)
        found = compare(old, new, old_cut=cut(0, 100), new_cut=cut(5, 100))
        assert (found.equal, found.differing, found.rows) == (8_999, 1, 9_000)
        assert found.patterns[0].examples[0].key == ("C04321",)
        assert (found.old_version, found.new_version) == (1, 2)
        with pytest.raises(UsageError, match="do not reflect the same input"):
            compare(old, new, old_cut=cut(1, 200), new_cut=cut(5, 100))


def test_keys_that_python_takes_for_one_are_compared_each(tmp_path: Path) -> None:
    keys: list[tuple[Any, ...]] = [(1,), (1.0,), (True,), ("1",)]
    with (
        open_store(Spec(), tmp_path / "1") as old,
        open_store(Spec(version=2), tmp_path / "2") as new,
    ):
        old.apply(cut(), keys, [json.dumps({"n": n}) for n in range(4)])
        new.apply(cut(), keys, [json.dumps({"n": n + n % 2}) for n in range(4)])
        found = compare(old, new, old_cut=cut(), new_cut=cut())
    assert (found.equal, found.differing, found.only_old.rows, found.only_new.rows) == (2, 2, 0, 0)


def folder(parent: Path, number: int) -> Path:
    found = parent / f"v{number}"
    found.mkdir()
    return found


@pytest.mark.parametrize("tolerance", [{}, {"n": "1%"}, {"n": "5"}])
def test_numbers_beyond_all_floats(tolerance: Mapping[str, str]) -> None:
    """JSON has whole numbers of any length."""
    old = {("a",): {"n": 10**400}, ("b",): {"n": 10**400}, ("c",): {"n": -(10**400)}, ("d",): {"n": 1}}
    new = {("a",): {"n": 1.5}, ("b",): {"n": 10**400}, ("c",): {"n": 10**400}, ("d",): {"n": 1e308}}
    found = compared(old, new, **tolerance)
    assert (found.equal, found.differing) == (1, 3)
    assert "v1 > v2 in 1 row" in text_of(found)
    assert json.dumps(found.to_json(), allow_nan=False)


def test_what_is_in_lists_is_as_equal_as_what_is_not() -> None:
    old = {("number",): {"x": [1, {"y": 2.0}]}, ("boolean",): {"x": [True]}, ("nested",): {"x": [{"y": 0}]}}
    new = {("number",): {"x": [1.0, {"y": 2}]}, ("boolean",): {"x": [1]}, ("nested",): {"x": [{"y": False}]}}
    found = compared(old, new)
    assert (found.near, found.differing) == (1, 2)
    assert {example.key for example in found.patterns[0].examples} == {("boolean",), ("nested",)}
    old, new = ({("a",): {"x": [math.nan, {"y": math.nan}], "z": math.nan, "n": n}} for n in (1, 2))
    assert [each.column for each in compared(old, new).columns] == ["n"]


def test_values_that_are_nested_as_deeply_as_json_may_be_are_compared() -> None:
    """The comparison ended with a RecursionError, and no row could be compared."""

    def nested(value: Any) -> dict[str, Any]:
        for _ in range(MAX_NESTING - 4):
            value = {"y": value}
        return {"x": [value]}

    old, new = ({("a",): nested(n), ("b",): nested(1)} for n in (1, 2))
    found = compared(old, new)
    assert (found.equal, found.differing) == (1, 1)


def test_a_name_with_a_dot_hides_no_nested_column() -> None:
    old = {("a",): {"gate": {"letter": "B"}, "gate.letter": "A"}, ("b",): {"gate": {"letter": "B"}}}
    new = {("a",): {"gate": {"letter": "C"}, "gate.letter": "A"}, ("b",): {"gate": {"letter": "B"}}}
    found = compared(old, new)
    assert (found.equal, found.differing) == (1, 1)
    other = {("a",): {"gate": {"letter": "B"}, "gate.letter": "D"}, ("b",): {"gate": {"letter": "B"}}}
    assert [each.column for each in compared(old, other).columns] == ['"gate.letter"']


def test_a_result_of_rows_with_names_without_end_can_be_kept() -> None:
    """The topic of decisions takes records of 16 MiB."""

    def rows(value: int) -> Rows:
        return {(f"C{n}",): {"by_flight": {f"flight-{n}-{m}": value for m in range(500)}} for n in range(300)}

    found = compared(rows(1), rows(2))
    assert (found.differing, len(found.columns)) == (300, 1_000)
    assert found.patterns[0].columns[-1] == ("450 more columns", "differ")
    assert "450 more columns differ" in text_of(found)
    assert len(json.dumps(found.to_json())) < MAX_BATCH_BYTES
