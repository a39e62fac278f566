"""A store is a dict of dicts: for any cuts, in any batches, whatever is forgotten and opened again in between, every
kept cut shows exactly its rows, their digests add up, and its changes lead from the cut before to it."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.share import examples
from support.view_stores import Described, cut

from suiro.views.store import open_store
from suiro.views.store.keys import place_of, prefix_of
from suiro.views.store.rows import Digest
from suiro.views.store.tables import Store

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=4),
    st.sampled_from(["a", "a\x00", ""]),
)  # fmt: skip
KEYS = st.tuples(st.sampled_from(["a", "b", "a\x00", 1, 1.0, None, True]), st.integers(0, 3))
RECORDS = st.tuples(
    KEYS, st.one_of(st.none(), st.fixed_dictionaries({"n": st.integers(0, 3), "word": st.sampled_from("xy")}))
)
BATCHES = st.lists(st.lists(RECORDS, max_size=6), max_size=3)
STEPS = st.lists(
    st.one_of(st.tuples(st.just("apply"), BATCHES), st.sampled_from([("prune", 1), ("prune", 3), ("open", 0)])),
    max_size=12,
)
Rows = dict[bytes, tuple[str, str]]


def _after(before: Rows, batches: list[list[Any]]) -> Rows:
    rows = dict(before)
    for key, value in (record for batch in batches for record in batch):
        if value is None:
            rows.pop(place_of(key), None)
        else:
            rows[place_of(key)] = (repr(key), json.dumps(value))
    return rows


def _shown(store: Store, as_of: int, **options: Any) -> Rows:
    rows = store.rows(as_of=as_of, limit=1_000, **options).rows
    assert [row.place for row in rows] == sorted(row.place for row in rows)
    return {row.place: (repr(row.key), row.value) for row in rows}


def _check(store: Store, states: dict[int, Rows]) -> None:
    kept = [found.number for found in reversed(list(store.newest_cuts()))]
    assert kept == sorted(states)[-len(kept) :]
    for number in kept:
        rows = states[number]
        assert _shown(store, number) == rows
        with_x = {place: row for place, row in rows.items() if json.loads(row[1])["word"] == "x"}
        assert _shown(store, number, search="x") == _shown(store, number, where=["word:eq:x"]) == with_x
        bounds = store.bucket_bounds(2)
        digests = list(store.bucket_digests(bounds, number))
        for bucket, digest in enumerate(digests):
            found = store.bucket_rows(bucket, bounds, number)
            assert digest == Digest.of([(1, row.hash & 0xFFFFFFFF, row.hash >> 32) for row in found])
        assert sum(digest.rows for digest in digests) == len(rows)
    for before, number in itertools.pairwise(kept):
        told = store.changes(before, number)
        assert told is not None
        assert told[0].number == number
        rows = dict(states[before])
        for change in told[1]:
            rows.pop(change.place, None)
            if change.value is not None:
                rows[change.place] = (repr(change.key), change.value)
        assert rows == states[number]


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_a_store_is_a_dict_for_every_kept_cut(steps: list[tuple[str, Any]]) -> None:
    spec = Described(history_ms=1, search=("word",))
    states: dict[int, Rows] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(spec, Path(folder))
        for kind, given_ in steps:
            if kind == "apply":
                number = len(states)
                batches = [[(key, value) for key, value in batch] for batch in given_]
                store.apply_batches(
                    cut(number),
                    (
                        (
                            [key for key, _ in batch],
                            [None if value is None else json.dumps(value) for _, value in batch],
                        )
                        for batch in batches
                    ),
                )
                states[number] = _after(states.get(number - 1, {}), batches)
            elif kind == "prune" and states:
                kept = len(list(store.newest_cuts()))
                store.prune((len(states) - given_) * 1_000 + 1)  # cuts are a second apart
                assert len(list(store.newest_cuts())) == min(given_, kept)
            elif kind == "open":
                store.close()
                store = open_store(spec, Path(folder))
        if states:
            _check(store, states)
        store.close()


@given(st.lists(SCALARS, min_size=2, max_size=3), st.lists(SCALARS, min_size=2, max_size=3))
def test_places_are_one_to_one_and_ordered_part_by_part(one: list[Any], other: list[Any]) -> None:
    same = [(type(part), repr(part)) for part in one] == [(type(part), repr(part)) for part in other]
    assert (place_of(one) == place_of(other)) == same
    if one[0] != other[0]:  # the first parts decide, whatever follows
        assert (place_of(one) < place_of(other)) == (place_of(one[:1]) < place_of(other[:1]))
    if type(one[0]) is type(other[0]) and isinstance(one[0], (int, float, str)) and one[0] != other[0]:
        by_code_point = one[0] < other[0]
        assert (place_of(one) < place_of(other)) == by_code_point


@given(st.text(max_size=5), st.text(max_size=5))
def test_a_prefix_of_text_is_a_prefix_of_places(text: str, begins: str) -> None:
    assert place_of([text, 1]).startswith(prefix_of([begins])) == text.startswith(begins)
    if begins:
        assert place_of(["a", text]).startswith(prefix_of(["a", begins])) == text.startswith(begins)
