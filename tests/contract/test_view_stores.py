"""One contract for the stores of views, SQLite and Postgres: equal cuts give equal answers, whichever store it is."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import psycopg
import pytest
from support.pooler import pooled
from support.postgres import Postgres
from support.view_stores import Described, cut, opened
from support.waiting import wait_until

from suiro.errors import TransientError, UsageError
from suiro.foundation.postgres_network import NETWORK
from suiro.views.analysis.compare.comparison import compare
from suiro.views.cuts import Cut
from suiro.views.store import open_store
from suiro.views.store.conditions import Condition
from suiro.views.store.meeting import Meeting, common_cut, no_common_cut
from suiro.views.store.rows import (
    CutGoneError,
    NoCutError,
    Row,
    StoreBrokenError,
    StoreOfAnotherError,
    StoreUnavailableError,
)
from suiro.views.store.tables import BUCKET_ROWS, Store

Open = Callable[..., Store]


@pytest.fixture(params=["sqlite", "postgres"])
def open_one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens a store; a second time with the same description the same one, as another process would."""
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    unique = f"v{uuid4().hex[:8]}"
    stores: list[Store] = []

    def make(**changes: Any) -> Store:
        spec = dataclasses.replace(Described(serve=request.param, view=unique), **changes)
        store = opened(spec, tmp_path / f"{spec.view}-{spec.version}", server)
        stores.append(store)
        return store

    yield make
    for store in stores:
        store.close()


def value(**fields: Any) -> str:
    return json.dumps(fields)


def keys(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [row.key for row in rows]


UA, DL = ("UA", "2013-01-01"), ("DL", "2013-01-01")


def test_before_its_first_cut_a_store_says_that_it_is_young(open_one: Open) -> None:
    store = open_one()
    assert store.cut is None
    assert list(store.newest_cuts()) == []
    with pytest.raises(NoCutError, match="no rows to show yet"):
        store.get(UA)


def test_a_row_is_served_as_it_was_written(open_one: Open) -> None:
    store = open_one()
    text = '{"b": 1.50, "a":"caf\u00e9 \\u0000"}'
    assert store.apply(cut(0), [UA, DL], [text, value(delay=1)])
    found = store.get(UA)
    assert found.row is not None
    assert (found.row.key, found.row.value) == (UA, text)
    assert found.cut == cut(0) == store.cut
    assert store.get(("UA", "2013-01-02")).row is None
    with pytest.raises(UsageError, match="2 parts, not 1"):
        store.get(("UA",))


def test_behind_a_pooler_each_store_has_its_own_rows(postgres: Postgres) -> None:
    """Between two transactions it gives a store another connection of the server, which another store had before."""
    unique = f"v{uuid4().hex[:8]}"
    one, other = (Described(serve="postgres", view=f"{unique}_{end}", search=("of",)) for end in "ab")
    with pooled(postgres.dsn) as dsn, open_store(one, dsn) as ours, open_store(other, dsn) as theirs:
        for number in range(12):  # the driver prepares what it has executed five times
            assert ours.apply(cut(number), [UA], [value(of="one", n=number)])
            assert theirs.apply(cut(number), [DL], [value(of="other", n=number)])
            assert [row.value for row in ours.rows(search="one").rows] == [value(of="one", n=number)]
            assert [row.value for row in theirs.rows().rows] == [value(of="other", n=number)]
        ours.prune(10**9)
        assert [found.number for found in ours.newest_cuts()] == [11]
        assert len(list(theirs.newest_cuts())) == 12


def test_an_old_cut_changes_nothing(open_one: Open) -> None:
    store = open_one()
    store.apply(cut(3), [UA], [value(n=3)])
    assert not store.apply(cut(3), [UA], [value(n=4)])
    assert not store.apply(cut(2), [UA], [None])
    row = store.get(UA).row
    assert row is not None
    assert json.loads(row.value) == {"n": 3}


def test_of_a_key_in_one_cut_the_last_record_counts(open_one: Open) -> None:
    store = open_one()
    batches = [([UA, DL, UA], [value(n=1), value(n=1), value(n=2)]), ([DL, UA], [None, value(n=3)])]
    store.apply_batches(cut(0), batches)
    assert [(row.key, row.value) for row in store.rows().rows] == [(UA, value(n=3))]
    store.apply_batches(cut(1), [([UA], [None]), ([UA], [value(n=4)])])
    assert store.rows(as_of=0).rows[0].value == value(n=3)
    assert store.rows(as_of=1).rows[0].value == value(n=4)


def test_every_kept_cut_can_be_read_as_it_was(open_one: Open) -> None:
    store = open_one()
    store.apply(cut(0), [UA, DL], [value(n=0), value(n=0)])
    store.apply(cut(1), [UA], [value(n=1)])
    store.apply(cut(2), [UA, DL], [value(n=1), None])
    store.apply(cut(3), [DL], [value(n=3)])

    def at(number: int) -> list[tuple[Any, ...]]:
        return [(row.key[0], json.loads(row.value)["n"]) for row in store.rows(as_of=number).rows]

    assert at(0) == [("DL", 0), ("UA", 0)]
    assert at(1) == [("DL", 0), ("UA", 1)]
    assert at(2) == [("UA", 1)]
    assert at(3) == [("DL", 3), ("UA", 1)]
    assert [store.get(DL, as_of=n).row is not None for n in range(4)] == [True, True, False, True]
    assert [found.number for found in store.newest_cuts()] == [3, 2, 1, 0]


def test_a_cut_is_found_by_time_and_by_what_it_had_read(open_one: Open) -> None:
    store = open_one()
    for number in range(3):
        inputs = {("a", 0): 10 * number, ("b", 0): 5 * number}
        store.apply(cut(number, inputs=inputs), [UA], [value(n=number)])
    assert store.cut_at(time_ms=1_999).number == 1
    assert store.cut_at(inputs={("a", 0): 20, ("b", 0): 9}).number == 1
    assert store.cut_at(inputs={("a", 0): 20, ("b", 0): 10}).number == 2
    assert store.cut_at(number=1) == list(store.newest_cuts())[1]
    for wanted in ({"time_ms": -1}, {"number": 7}, {"inputs": {("a", 0): -1}}):
        with pytest.raises(CutGoneError, match="keeps cuts 0 to 2"):
            store.cut_at(**wanted)


def test_what_is_forgotten_is_refused_and_the_rest_stands(open_one: Open) -> None:
    store = open_one(history_ms=2_500, search=("n",))
    for number in range(6):
        store.apply(cut(number), [UA, (str(number), "x")], [value(n=number), value(n=number)])
    assert store.prune(5_500) == 3  # made at 3000, 4000 and 5000 ms: kept
    assert [found.number for found in store.newest_cuts()] == [5, 4, 3]
    with pytest.raises(CutGoneError):
        store.get(UA, as_of=2)
    for number in (3, 4, 5):
        assert store.get(UA, as_of=number).row is not None
        assert len(store.rows(as_of=number).rows) == number + 2
        assert keys(store.rows(search=str(number), as_of=number).rows) == [(str(number), "x"), UA]
    assert store.prune(10**9) == 2
    assert [found.number for found in store.newest_cuts()] == [5]
    assert len(store.rows(as_of=5).rows) == 7
    assert store.prune(10**9) == 0


def test_the_state_at_the_beginning_of_the_window_is_kept_however_old_it_is(open_one: Open) -> None:
    """Nothing came for a long time, then something does: what was there a moment ago can still be read."""
    store = open_one(history_ms=2_500)
    for number, time_ms in enumerate((1_000, 2_000, 900_000)):
        store.apply(cut(number, time_ms=time_ms), [UA], [value(n=number)])
    assert store.prune(900_000) == 1
    old = store.cut_at(time_ms=899_000)
    assert old.number == 1
    assert store.get(UA, as_of=old.number).row == store.rows(as_of=1).rows[0]
    assert store.prune(902_500) == 1
    with pytest.raises(CutGoneError):
        store.cut_at(time_ms=899_000)


def test_cuts_newest_first_as_far_as_is_asked_for(open_one: Open) -> None:
    store = open_one()
    for number in range(250):
        store.apply(cut(number), [], [])
    assert [found.number for found in store.newest_cuts()] == list(range(249, -1, -1))
    assert next(store.newest_cuts()) == store.cut


def test_a_store_opens_while_a_large_cut_is_written(open_one: Open) -> None:
    store = open_one()
    store.apply(cut(0), [UA], [value(n=0)])

    def batches() -> Iterator[Any]:
        with open_one() as other:  # in the middle of the transaction
            assert other.cut == cut(0)
        yield [UA], [value(n=1)]

    assert store.apply_batches(cut(1), batches())


def test_keys_are_ordered_part_by_part_and_one_to_one(open_one: Open) -> None:
    store = open_one()
    ordered = [
        (None, ""), (False, ""), (True, ""), (-(2**70), ""), (-3, ""), (-2.5, ""), (0, ""), (0.0, ""), (1, ""),
        (1.0, ""), (2.5, ""), (3, ""), (2**53 + 1, ""), (2**70, ""), ("", "z"), ("a", ""), ("a", "\x00"), ("a", "b"),
        ("a\x00", ""), ("ab", ""), ("b", [1, {"x": None}]), ("\u00e9", ""),
    ]  # fmt: skip
    store.apply(cut(0), ordered[::-1], [value(n=number) for number in range(len(ordered))])
    found = keys(store.rows(limit=1_000).rows)
    assert [repr(key) for key in found] == [repr(key) for key in ordered]
    for key in ordered:
        row = store.get(key).row
        assert row is not None
        assert repr(row.key) == repr(key)
    assert store.key_types()[0] == {"null", "boolean", "integer", "number", "string"}


def test_ranges_and_prefixes_are_of_parts_of_the_key(open_one: Open) -> None:
    store = open_one()
    all_keys = [(carrier, f"2013-{month:02}") for carrier in ("AA", "U", "UA", "UX") for month in (1, 2, 10)]
    store.apply(cut(0), all_keys, [value(n=1)] * len(all_keys))
    assert keys(store.rows(first=("U", "2013-10"), last=("UA",)).rows) == [("U", "2013-10"), *all_keys[6:9]]
    assert keys(store.rows(prefix=("UA",)).rows) == all_keys[6:9]
    assert keys(store.rows(prefix=("U",)).rows) == all_keys[3:]
    assert keys(store.rows(prefix=("U", "")).rows) == all_keys[3:6]
    assert keys(store.rows(prefix=("UA", "2013-0")).rows) == all_keys[6:8]
    assert keys(store.rows(first=("B",), last=("B",)).rows) == []


def test_pages_follow_each_other_in_one_cut(open_one: Open) -> None:
    store = open_one()
    all_keys = [(f"k{number:02}", "d") for number in range(25)]
    store.apply(cut(0), all_keys, [value(n=1)] * 25)
    page = store.rows(limit=10)
    store.apply(cut(1), [("k10", "d"), ("k105", "d")], [None, value(n=2)])
    found = keys(page.rows)
    while page.next is not None:
        page = store.rows(limit=10, after=page.next, as_of=page.cut.number)
        found += keys(page.rows)
    assert found == all_keys
    with pytest.raises(UsageError, match="between 1 and"):
        store.rows(limit=0)


ODD = {
    "number": 10, "float": 2.5, "text": "10", "high": "Zurich", "low": "apple", "yes": True, "none": None,
    "object": {"a": 1}, "list": [1], "big": 2**60, "quote": "it's 100% \u00e9",
}  # fmt: skip


def test_a_page_of_large_rows_ends_early(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand rows of a megabyte were in the memory of the host at once."""
    for module in ("tables", "postgres"):
        monkeypatch.setattr(f"suiro.views.store.{module}.FEW_ROWS", 2, raising=False)
        monkeypatch.setattr(f"suiro.views.store.{module}.PAGE_CHARS", 1_000, raising=False)
    store = open_one()
    names = [(f"{n}", "d") for n in range(9)]
    texts = [value(text="x" * (2_000 if n == 4 else 300)) for n in range(9)]
    store.apply(cut(0), names, texts)
    for as_of in (None, 0):
        found, after = [], None
        while True:
            page = store.rows(limit=9, after=after, as_of=as_of)
            found.append(keys(page.rows))
            after = page.next
            if after is None:
                break
        assert found == [names[0:4], names[4:5], names[5:9]]
    assert keys(store.rows(limit=2, after=store.rows(limit=3).next).rows) == names[3:5]


def test_what_is_behind_a_page_of_large_rows_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The whole range was read for each page, and 10,000 rows of a megabyte took longer than a question may."""
    monkeypatch.setattr("suiro.views.store.tables.PAGE_CHARS", 1_000)
    monkeypatch.setattr("suiro.views.store.sqlite.QUESTION_LIMIT_S", -1.0)
    monkeypatch.setattr("suiro.views.store.sqlite.STEPS_BETWEEN_LOOKS", 10_000)
    names = [(f"{n:04}", "d") for n in range(2_000)]
    with open_store(Described(), tmp_path) as store:
        store.apply(cut(0), names, [value(text="x" * 300)] * len(names))
        for as_of in (None, 0):
            page = store.rows(limit=10_000, as_of=as_of)
            assert keys(page.rows) == names[:4]
            assert keys(store.rows(limit=1, after=page.next).rows) == names[4:5]


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("number:eq:10", True), ("number:eq:10.0", True), ('number:eq:"10"', False), ("text:eq:10", False),
        ('text:eq:"10"', True), ("number:gt:9", True), ("number:gt:10", False), ("number:ge:10", True),
        ("number:lt:10.5", True), ("number:le:9.99", False), ("text:gt:9", False), ("high:lt:apple", True),
        ("low:gt:Zurich", True), ("low:prefix:app", True), ("low:prefix:App", False), ("yes:eq:true", True),
        ("yes:eq:false", False), ("yes:ne:false", True), ("none:eq:null", True), ("missing:eq:null", True),
        ("number:ne:null", True), ("missing:ne:5", True), ("missing:gt:5", False), ("number:ne:11", True),
        ("number:ne:10", False), ("object.a:eq:1", True), ("object:eq:1", False), ("list:eq:1", False),
        ("float:eq:2.5", True), ("big:eq:1152921504606846976", True), ("big:gt:1e400", False),
        ("quote:eq:it's 100% \u00e9", True), ("carrier:eq:UA", True), ("carrier:prefix:D", False),
        ("day:gt:2012", False), ("carrier:ne:null", True),
    ],
)  # fmt: skip
def test_conditions_look_at_type_and_value(filled: Store, where: str, holds: bool) -> None:
    assert bool(filled.rows(where=[where]).rows) is holds


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One row with all kinds of fields, and one without any that is filtered away by `carrier`'s range."""
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    spec = Described(serve=request.param, view=f"v{uuid4().hex[:8]}")
    with opened(spec, tmp_path_factory.mktemp("store"), server) as store:
        store.apply(cut(0), [UA], [json.dumps(ODD)])
        yield store


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("n:eq:1", ["nul"]),
        ("text:prefix:a", ["nul"]),
        (r'path:eq:"\\u0000"', ["path"]),
        ("path:prefix:\\", ["path"]),
    ],
)
def test_a_row_with_the_character_nul_is_searched_as_others_are(open_one: Open, where: str, found: list[str]) -> None:
    store = open_one(key=("name",))
    values = [value(n=1, text="a\x00b"), value(n=2, path="\\u0000")]
    store.apply(cut(0), [("nul",), ("path",)], values)
    assert [row.key[0] for row in store.rows(where=[where]).rows] == found


@pytest.mark.parametrize("where", ["n:eq:1", "text:prefix:a", "pair:eq:\U0001f600"])
@pytest.mark.parametrize("codes", [[0xD800], [0xDC00], [0xD800, 0xD800], [0xDC00, 0xD800]])
def test_a_row_with_half_of_a_surrogate_pair_is_searched_as_others_are(
    open_one: Open, where: str, codes: list[int]
) -> None:
    half = "".join(map(chr, codes))
    store = open_one(key=("name",))
    values = [value(n=1, text=f"a{half}b", pair="\U0001f600"), value(n=2, text=half)]
    store.apply(cut(0), [("one",), ("other",)], values)
    assert [row.key[0] for row in store.rows(where=[where]).rows] == ["one"]


def test_conditions_are_joined_and_wrong_ones_refused(filled: Store) -> None:
    assert filled.rows(where=["number:eq:10", "low:eq:apple"]).rows
    assert not filled.rows(where=["number:eq:10", "low:eq:pear"]).rows
    for wrong in (
        "number",
        "number:10",
        "number:like:1",
        ":eq:1",
        'a"b:eq:1',
        "number:gt:true",
        "object..a:eq:1",
    ):
        with pytest.raises(UsageError, match="where"):
            filled.rows(where=[wrong])
    with pytest.raises(UsageError, match="takes text"):
        Condition("number", "prefix", 1)
    with pytest.raises(UsageError, match="no words to search"):
        filled.rows(search="apple")


def test_words_are_found_as_of_any_cut(open_one: Open) -> None:
    store = open_one(search=("carrier", "note", "tags"))
    store.apply(
        cut(0),
        [UA, DL],
        [value(note="Delayed by SNOW, gate 12", other="fog"), value(note=None, tags=["Snow"])],
    )
    store.apply(cut(1), [UA], [value(note="on time")])
    store.apply_batches(cut(2), [([DL], [value(note="rain")]), ([DL], [value(note="hail's")])])
    assert keys(store.rows(search="snow", as_of=0).rows) == [DL, UA]
    assert keys(store.rows(search="snow", as_of=1).rows) == [DL]
    assert keys(store.rows(search="snow").rows) == []
    assert keys(store.rows(search="TIME ua").rows) == [UA]
    assert keys(store.rows(search="gate 1*", as_of=0).rows) == [UA]
    assert keys(store.rows(search="hail").rows) == [DL]
    for nothing in ("rain", "fog", "gate 1", "time dl"):
        assert keys(store.rows(search=nothing).rows) == []
    with pytest.raises(UsageError, match="no word"):
        store.rows(search="!?")


def test_changes_are_told_cut_by_cut(open_one: Open) -> None:
    store = open_one()
    store.apply(cut(0), [UA, DL], [value(n=0), value(n=0)])
    store.apply(cut(1), [UA, ("AA", "x")], [value(n=1), None])
    store.apply(cut(4), [UA, DL], [value(n=1), None])
    store.apply_batches(cut(5), [([("AA", "x")], [value(n=5)]), ([("AA", "x")], [None])])

    def told(after: int, **rest: Any) -> Any:
        found = store.changes(after, 5, **rest)
        assert found is not None
        return found[0].number, [(change.key, change.value) for change in found[1]], found[2]

    assert told(0) == (1, [(UA, value(n=1))], None)
    assert told(1) == (4, [(DL, None)], None)
    assert told(4) == (5, [], None)
    assert store.changes(5, 5) is None
    with pytest.raises(CutGoneError):
        store.changes(3, 5)
    more = [(f"k{number}", "d") for number in range(5)]
    store.apply(cut(6), more, [value(n=6)] * 5)
    first = store.changes(5, 6, limit=3)
    assert first is not None
    assert [change.key for change in first[1]] == more[:3]
    rest = store.changes(5, 6, limit=3, start=first[2] or b"")
    assert rest is not None
    assert [change.key for change in rest[1]] == more[3:]
    assert rest[2] is None


def test_made_anew_a_store_has_what_there_is_and_its_history(open_one: Open) -> None:
    store = open_one()
    gone = ("gone", "d")
    store.apply(cut(0), [UA, DL, gone], [value(n=0)] * 3)
    store.apply_batches(cut(9), [([UA, DL], [value(n=9), value(n=0)]), ([("new", "d")], [value(n=9)])], anew=True)
    assert keys(store.rows().rows) == [DL, UA, ("new", "d")]
    assert keys(store.rows(as_of=0).rows) == [DL, UA, gone]
    found = store.changes(0, 9)
    assert found is not None
    assert [(change.key, change.value) for change in found[1]] == [
        (UA, value(n=9)), (gone, None), (("new", "d"), value(n=9))
    ]  # fmt: skip


def test_buckets_tell_where_two_stores_differ(open_one: Open) -> None:
    old, new = open_one(), open_one(version=2)
    rows = [((f"c{number % 7}", f"d{number:04}"), {"b": number, "a": "x"}) for number in range(500)]
    old.apply(cut(0), [key for key, _ in rows], [json.dumps(row) for _, row in rows])
    # The same rows with their fields in another order, under another cut; then one differs, one is gone, one swapped.
    new.apply(cut(5), [key for key, _ in rows], [json.dumps(row, sort_keys=True) for _, row in rows])
    bounds = old.bucket_bounds(50)
    assert len(bounds) == 500 // 50
    assert list(old.bucket_digests(bounds, 0)) == list(new.bucket_digests(bounds, 5))
    new.apply(cut(6), [rows[0][0]], [json.dumps({"b": -1, "a": "x"})])
    new.apply(cut(7), [rows[1][0], rows[2][0], rows[3][0]], [None, json.dumps(rows[3][1]), json.dumps(rows[2][1])])
    ours, theirs = list(old.bucket_digests(bounds, 0)), list(new.bucket_digests(bounds, 7))
    different = [number for number, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    assert 0 < len(different) <= 4

    def rows_of(store: Store, bucket: int, as_of: int) -> set[tuple[tuple[Any, ...], int]]:
        return {(row.key, row.hash) for row in store.bucket_rows(bucket, bounds, as_of)}

    found = {key for n in different for key, _ in rows_of(old, n, 0) ^ rows_of(new, n, 7)}
    assert found == {rows[number][0] for number in range(4)}
    assert list(new.bucket_digests(bounds, 5)) == ours  # as it was
    assert sum(digest.rows for digest in ours) == 500
    assert [row.key for row in new.bucket_rows(0, (), 7)] == keys(new.rows(limit=1_000).rows)


def test_no_bucket_is_large_where_one_store_has_hardly_a_row(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = open_one(), open_one(version=2)
    old.apply(cut(0), [UA], [value(n=0)])
    count = 2 * BUCKET_ROWS + 100
    new.apply(cut(0), [(f"{number:06}", "x") for number in range(count)], [value(n=0)] * count)
    sizes: list[int] = []
    rows_of = Store.bucket_rows

    def counted(store: Store, *arguments: Any) -> list[Row]:
        rows = rows_of(store, *arguments)
        sizes.append(len(rows))
        return rows

    monkeypatch.setattr(Store, "bucket_rows", counted)
    for one, other in ((old, new), (new, old)):
        sizes.clear()
        found = compare(one, other, old_cut=cut(0), new_cut=cut(0))
        assert found.rows == sum(sizes) == count + 1
        assert max(sizes) <= BUCKET_ROWS


def test_a_key_that_an_index_cannot_hold_is_no_trouble_of_the_database(open_one: Open) -> None:
    """Said as one that is over by itself, it would be tried again for ever."""
    store = open_one()
    key = (os.urandom(5_000).hex(), "x")
    if store.spec.serve == "sqlite":
        assert store.apply(cut(0), [key], [value(n=0)])
        return
    with pytest.raises(UsageError, match="cannot take this: index row"):
        store.apply(cut(0), [key], [value(n=0)])
    assert store.apply(cut(0), [UA], [value(n=0)])


def test_two_stores_meet_where_they_had_read_the_same(open_one: Open) -> None:
    old, new = open_one(), open_one(version=2)
    for number, offset in enumerate((10, 20, 30, 40)):
        old.apply(cut(number, inputs={("in", 0): offset, ("in", 1): 7}), [], [])
    assert common_cut(old, new) is None
    for number, offset in enumerate((5, 20, 30, 33)):
        new.apply(cut(number, inputs={("in", 0): offset, ("in", 1): 7, ("in", 2): 0}), [], [])
    found = common_cut(old, new)
    assert found is not None
    assert [one.number for one in found] == [2, 2]
    assert common_cut(old, open_one(version=3)) is None


def test_a_meeting_is_looked_for_in_what_is_new(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = open_one(), open_one(version=2)
    read: list[int] = []
    newest_cuts = type(old).newest_cuts

    def counted(store: Store) -> Iterator[Cut]:
        for found in newest_cuts(store):
            read.append(found.number)
            yield found

    monkeypatch.setattr(type(old), "newest_cuts", counted)
    meeting = Meeting(old, new)
    assert meeting.look() is None
    for number in range(30):
        old.apply(cut(number, inputs={("in", 0): 10 * number}), [], [])
        new.apply(cut(number, inputs={("in", 0): 10 * number - 100 + number % 3}), [], [])
        found, afresh = meeting.look(), common_cut(old, new)
        assert found == (None if afresh is None else (afresh[0].number, afresh[1].number))
        assert afresh is None or afresh[0].inputs == afresh[1].inputs
    assert meeting.look() == (17, 27)
    read.clear()
    meeting.look()
    assert read == [29, 29]


def test_a_meeting_does_not_hold_the_cuts(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host looks for it, and a day of cuts with many partitions took gigabytes of its memory."""
    old, new = open_one(), open_one(version=2)
    count, partitions = 2_000, 20

    def cuts(store: Store) -> Iterator[Cut]:
        for number in reversed(range(count)):
            yield cut(number, inputs={("in", partition): number for partition in range(partitions)})

    for store in (old, new):
        store.apply(cut(0), [], [])
    monkeypatch.setattr(type(old), "newest_cuts", cuts)
    meeting = Meeting(old, new)
    tracemalloc.start()
    try:
        assert meeting.look() == (count - 1, count - 1)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * count * 500


def test_why_two_stores_do_not_meet(open_one: Open) -> None:
    old, new, other = open_one(), open_one(version=2), open_one(version=3)
    old.apply(cut(0, inputs={("in", 0): 30, ("in", 1): 4, ("side", 0): 9}), [], [])
    assert "version 2 has no rows yet" in str(no_common_cut(old, new))
    new.apply(cut(0, inputs={("in", 0): 20, ("in", 1): 5}), [], [])
    said = no_common_cut(old, new)
    assert isinstance(said, TransientError)
    assert "version 1 lacks what version 2 has of in-1 from offset 4 to 5;" in str(said)
    assert "version 2 lacks what version 1 has of in-0 from offset 20 to 30." in str(said)
    other.apply(cut(0, inputs={("elsewhere", 0): 1}), [], [])
    said = no_common_cut(old, other)
    assert isinstance(said, UsageError)
    assert "version 1 reads in, side, version 3 reads elsewhere" in str(said)


def test_what_is_held_is_not_forgotten(open_one: Open) -> None:
    """While it is read the follower forgets: a comparison takes longer than a short history lasts."""
    store, follower = open_one(history_ms=1_000), open_one(history_ms=1_000)
    for number in range(3):
        store.apply(cut(number), [UA], [value(n=number)])
    with store.held():
        assert [found.number for found in store.newest_cuts()] == [2, 1, 0]
        assert follower.prune(60_000) == 2
        assert [found.number for found in store.newest_cuts()] == [2, 1, 0]
        row = store.get(UA, as_of=0).row
        assert row is not None
        assert row.value == value(n=0)
        assert store.bucket_rows(0, (), 0) == [row]
    with pytest.raises(CutGoneError):
        store.get(UA, as_of=0)


def test_a_refused_batch_leaves_nothing(open_one: Open) -> None:
    store = open_one()
    store.apply(cut(0), [UA], [value(n=0)])

    def batches() -> Iterator[Any]:
        yield [UA, DL], [value(n=1), value(n=1)]
        raise UsageError("the source broke")

    with pytest.raises(UsageError, match="broke"):
        store.apply_batches(cut(1), batches())
    for wrong, words in ((["{"], "no JSON"), (['{"a":' * 100_000], "no JSON")):
        with pytest.raises(UsageError, match=words):
            store.apply(cut(1), [UA], list(wrong))
    with pytest.raises(UsageError, match="part of type"):
        store.apply(cut(1), [(UA, b"x")], [value(n=1)])
    with pytest.raises(UsageError, match="1 parts"):
        store.apply(cut(1), [("UA",)], [value(n=1)])
    assert [(row.key, row.value) for row in store.rows().rows] == [(UA, value(n=0))]
    assert store.cut == cut(0)
    assert store.apply(cut(1), [UA], [value(n=1)])


def test_what_json_does_not_have_is_served_as_null(open_one: Open) -> None:
    store = open_one()
    store.apply(cut(0), [UA, DL, (float("nan"), "x")], ['{"a":NaN,"b":1}', '{"a":"NaN, -Infinity"}', "{}"])
    row = store.get(UA).row
    assert row is not None
    assert row.value == '{"a":null,"b":1}'
    row = store.get(DL).row
    assert row is not None
    assert row.value == '{"a":"NaN, -Infinity"}'
    assert keys(store.rows(where=["b:eq:1"]).rows) == [UA]


def test_half_of_a_surrogate_pair_is_stored_as_its_escape(open_one: Open) -> None:
    """UTF-8 does not have it. A serde of a user may give it, and so did a row with a NaN."""
    store = open_one()
    assert store.apply(cut(0), [UA, DL], ['{"a":"\ud800 \u00e9"}', '{"a":NaN,"b":"\\ud800"}'])
    assert [row.value for row in store.rows().rows] == ['{"a":null,"b":"\\ud800"}', '{"a":"\\ud800 \u00e9"}']


def test_another_handle_reads_what_was_written_and_goes_on(open_one: Open) -> None:
    writer, reader = open_one(), open_one()
    writer.apply(cut(0), [UA], [value(n=0)])
    assert reader.get(UA).row is not None
    writer.close()
    assert reader.apply(cut(1), [UA], [value(n=1)])
    assert open_one().cut == cut(1)


def test_a_place_of_another_version_is_refused(open_one: Open) -> None:
    open_one()
    with pytest.raises(StoreBrokenError, match="is of"):
        open_one(key=("carrier",))


def test_a_place_of_another_log_is_refused(open_one: Open) -> None:
    """The same view, the same version: its cuts would be taken for those of this log, and stale rows be served."""
    open_one(journal_id="A").apply(cut(7), [UA], [value(n=1)])
    assert open_one(journal_id="A").newest().number == 7
    for other in ("B", ""):
        with pytest.raises(StoreOfAnotherError, match=r"from another log: .* has the id A, here .*--data"):
            open_one(journal_id=other)


def test_a_store_of_a_later_release_is_refused(open_one: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        for module in ("postgres", "sqlite", "tables"):
            later.setattr(f"suiro.views.store.{module}.FORMAT_VERSION", 2)
        open_one()
    with pytest.raises(StoreBrokenError, match=r"has format 2, .* reads 1: use the one that made it, or remove it"):
        open_one()


def test_dropped_a_store_takes_no_room(open_one: Open, tmp_path: Path) -> None:
    store = open_one()
    store.apply(cut(0), [UA], [value(n=0)])
    store.drop()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert open_one().cut is None


def test_a_store_that_is_being_compared_is_dropped_later(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever frees a retired version is not held up for as long as somebody reads it: it tries again."""
    monkeypatch.setattr("suiro.views.store.postgres.DROP_WAIT_MS", 50)
    spec = Described(serve="postgres", view=f"v{uuid4().hex[:8]}")
    with opened(spec, Path(), postgres) as compared, ThreadPoolExecutor(1) as threads:
        compared.apply(cut(0), [UA], [value(n=0)])
        freed = opened(spec, Path(), postgres)
        with compared.held():
            assert keys(compared.rows().rows) == [UA]
            with pytest.raises(StoreUnavailableError, match="lock timeout"):
                threads.submit(freed.drop).result(20)
            assert keys(compared.rows().rows) == [UA]
        freed.drop()
        with pytest.raises(StoreBrokenError):
            compared.rows()


def test_a_reader_does_not_wait_for_a_lock_for_ever(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons of guards held all their turns for an hour, look-ups their threads, and a view its reconciler."""
    monkeypatch.setattr("suiro.views.store.postgres.LOCK_WAIT_MS", 50, raising=False)
    spec = Described(serve="postgres", view=f"v{uuid4().hex[:8]}")
    with (
        open_store(spec, postgres.dsn) as store,
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(postgres.dsn) as other,
    ):
        store.apply(cut(0), [UA], [value(n=0)])
        other.execute(f"LOCK TABLE {store.schema}.cuts, {store.schema}.meta")  # type: ignore[attr-defined]
        for reads in (store.newest, lambda: open_store(spec, postgres.dsn)):
            with pytest.raises(StoreUnavailableError, match="lock timeout"):
                threads.submit(reads).result(10)
        other.rollback()
        assert keys(store.rows().rows) == [UA]


def test_a_connection_whose_network_goes_silent_ends(postgres: Postgres) -> None:
    """A look-up waited for the answer of a server that was gone until TCP gave up, and the follower for ever."""
    spec = Described(serve="postgres", view=f"v{uuid4().hex[:8]}")
    dsn = psycopg.conninfo.make_conninfo(postgres.dsn, keepalives_idle=7)
    with open_store(spec, dsn) as store, store._connect() as connection:  # type: ignore[attr-defined]
        parameters = connection.info.get_parameters()
    assert {name: int(parameters[name]) for name in NETWORK if name in parameters} == NETWORK | {
        "connect_timeout": 10,
        "keepalives_idle": 7,
    }
    dsn = psycopg.conninfo.make_conninfo(dsn, connect_timeout=3)
    with open_store(spec, dsn) as store, store._connect() as connection:  # type: ignore[attr-defined]
        assert connection.info.get_parameters()["connect_timeout"] == "3"


def test_a_statement_that_an_administrator_cancels_is_tried_again(postgres: Postgres) -> None:
    """It was told as a question that took too long, which ends the follower: after three, the version has failed."""
    spec = Described(serve="postgres", view=f"v{uuid4().hex[:8]}")
    with (
        open_store(spec, postgres.dsn) as store,
        psycopg.connect(postgres.dsn) as other,
        Sessions(postgres, spec) as sessions,
        ThreadPoolExecutor(1) as threads,
    ):
        other.execute(f"LOCK TABLE {store.schema}.meta")  # type: ignore[attr-defined]
        writing = threads.submit(store.apply, cut(0), [UA], [value(n=0)])
        wait_until(lambda: sessions.cancel("active"), what="the statement that waits")
        with pytest.raises(StoreUnavailableError, match="canceling statement due to user request"):
            writing.result(30)
        other.rollback()
        assert store.apply(cut(0), [UA], [value(n=0)])


class Sessions:
    """The sessions of a store, as an administrator sees them."""

    def __init__(self, postgres: Postgres, spec: Described) -> None:
        self._connection = psycopg.connect(postgres.dsn, autocommit=True)
        self._name = f"suiro view {spec.view} v{spec.version}"
        self._dsn = postgres.dsn

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._connection.close()

    def limited(self, *timeouts: str) -> str:
        """A DSN with which they have these timeouts, if the server has them."""
        known = [row[0] for row in self._connection.execute("SELECT name FROM pg_settings")]
        options = [f"-c {name}={TIMEOUT_MS}" for name in timeouts if name in known]
        return psycopg.conninfo.make_conninfo(self._dsn, options=" ".join(options))

    def cancel(self, state: str) -> bool:
        found = self._connection.execute(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND state = %s "
            "AND wait_event_type = 'Lock'",
            (self._name, state),
        )
        return found.fetchone() is not None

    def last(self, state: str) -> bool:
        """Whether one has been in this state for longer than the timeouts."""
        found = self._connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND state = %s "
            "AND clock_timestamp() - state_change > %s * interval '2 ms'",
            (self._name, state, TIMEOUT_MS),
        )
        return found.fetchone() is not None


TIMEOUT_MS = 500


def test_no_timeout_of_the_server_ends_a_large_cut(postgres: Postgres) -> None:
    """Each attempt took as long as the one before, so the follower never came further."""
    spec = Described(serve="postgres", view=f"v{uuid4().hex[:8]}")
    with (
        Sessions(postgres, spec) as sessions,
        open_store(spec, sessions.limited("statement_timeout", "transaction_timeout")) as store,
        psycopg.connect(postgres.dsn) as other,
        ThreadPoolExecutor(1) as threads,
    ):

        def batches() -> Iterator[Any]:
            yield [UA], [value(n=0)]
            wait_until(lambda: sessions.last("idle in transaction"), what="a transaction that waits for rows")
            yield [DL], [value(n=0)]

        other.execute(f"LOCK TABLE {store.schema}.rows IN SHARE MODE")  # type: ignore[attr-defined]
        writing = threads.submit(store.apply_batches, cut(0), batches())
        wait_until(lambda: writing.done() or sessions.last("active"), what="a statement that takes long")
        other.rollback()
        assert writing.result(60)
        assert keys(store.rows().rows) == [DL, UA]


def test_no_timeout_of_the_server_ends_a_long_comparison(postgres: Postgres) -> None:
    """While one of the stores is read, the transaction of the other is idle."""
    spec = Described(serve="postgres", view=f"v{uuid4().hex[:8]}")
    timeouts = ("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout")
    with Sessions(postgres, spec) as sessions, open_store(spec, sessions.limited(*timeouts)) as store:
        store.apply(cut(0), [UA], [value(n=0)])
        with store.held(is_long=True):
            wait_until(lambda: sessions.last("idle in transaction"), what="a transaction that is idle")
            assert keys(store.rows().rows) == [UA]


@pytest.mark.parametrize("where", ["database", "client"])
def test_texts_are_utf_8_whatever_encoding_the_database_or_the_client_says(postgres: Postgres, where: str) -> None:
    """initdb without a locale makes databases of SQL_ASCII, of which the driver gives bytes."""
    spec = Described(serve="postgres", view=f"v{uuid4().hex[:8]}")
    dsn = psycopg.conninfo.make_conninfo(postgres.dsn, client_encoding="latin1")
    if where == "database":
        with psycopg.connect(postgres.dsn, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {spec.view} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        dsn = psycopg.conninfo.make_conninfo(postgres.dsn, dbname=spec.view)
    text = '{"city":"\u017b\u00f3\u0142ty"}'
    for number in range(2):
        with open_store(spec, dsn) as store:
            store.apply(cut(number), [UA], [text])
            assert [row.value for row in store.rows(where=["city:prefix:\u017b"]).rows] == [text]


def test_who_reads_on_makes_no_file_where_one_was_dropped(tmp_path: Path) -> None:
    """A read that is under way while its version is retired: what was freed stays so."""
    store = opened(Described(), tmp_path, None)
    store.apply(cut(0), [UA], [value(n=1)])
    store.drop()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TransientError, match="is closed; ask again"):
        store.get(UA)
    assert list(tmp_path.iterdir()) == []


WRITER = """
import json, sys
from support.view_stores import Described, cut
from suiro.views.store import open_store

def say(*words):
    print(*words, flush=True)
    sys.stdin.readline()  # until it is told to go on, or killed

spec, location, rows = Described(**json.loads(sys.argv[1])), sys.argv[2], 1_000
with open_store(spec, location) as store:
    number = -1 if store.cut is None else store.cut.number
    while True:
        number += 1
        keys = [(f"k{row}", "d") for row in range(rows)] + [(f"cut{number}", "d")]
        values = [json.dumps({"n": number})] * len(keys)
        def batches():
            for first in range(0, len(keys), 250):
                yield keys[first : first + 250], values[first : first + 250]
                say("within" if first == 750 else "between", number)
        store.apply_batches(cut(number), batches())
        say("done", number)
"""


@pytest.mark.parametrize("moments", [("within 1", "done 2")])
def test_killed_while_it_writes_a_store_has_whole_cuts(
    open_one: Open, request: pytest.FixtureRequest, tmp_path: Path, moments: Sequence[str]
) -> None:
    store = open_one()
    spec = {"view": store.spec.view, "serve": store.spec.serve}
    is_postgres = store.spec.serve == "postgres"
    location = request.getfixturevalue("postgres").dsn if is_postgres else str(tmp_path / f"{store.spec.view}-1")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path])}
    for moment in moments:
        command = [sys.executable, "-c", WRITER, json.dumps(spec), location]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            said = None
            for line in writer.stdout:
                said = line.strip()
                if said == moment:
                    break
                writer.stdin.write("\n")
                writer.stdin.flush()
            writer.send_signal(signal.SIGKILL)
        assert said == moment
        kind, number = moment.split()
        newest = store.newest().number
        assert newest == int(number) - 1 if kind == "within" else newest >= int(number)
        for as_of in range(newest + 1):
            rows = store.rows(as_of=as_of, limit=10_000).rows
            assert {row.value for row in rows if row.key[0].startswith("k")} == {value(n=as_of)}
            assert len(rows) == 1_000 + as_of + 1


def test_a_file_that_the_host_has_no_right_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version was being built for ever, as if the file could be opened soon."""
    spec = Described(serve="sqlite", view="delays")
    file = tmp_path / "store.sqlite"
    file.mkdir()  # SQLite cannot open it, also for root
    with pytest.raises(StoreUnavailableError, match="unable to open"):
        open_store(spec, tmp_path)  # rights are not why
    monkeypatch.setattr(os, "access", lambda path, mode: path != file)
    with pytest.raises(StoreBrokenError, match=r"unable to open.*The host's user needs the right to read and write"):
        open_store(spec, tmp_path)


def test_a_schema_that_the_host_has_no_right_to(postgres: Postgres) -> None:
    spec = Described(serve="postgres", view=f"v{uuid4().hex[:8]}")
    with opened(spec, Path(), postgres) as store, psycopg.connect(postgres.dsn, autocommit=True) as owner:
        store.apply(cut(0), [UA], [value(n=0)])
        role = f"r{uuid4().hex[:8]}"
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        other = psycopg.conninfo.make_conninfo(postgres.dsn, user=role, password="x")
        with pytest.raises(StoreBrokenError, match=r"permission denied.*Give the host's role this right"):
            open_store(spec, other)
