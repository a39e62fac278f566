from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from suiro.spark.offsets import Positions, digest, evenly_limited, limited, split_range

PLACES = st.tuples(st.sampled_from(["a", "b.c", "d-1"]), st.integers(0, 20))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 2**62), max_size=8)


def test_json_is_that_of_sparks_connector_with_members_beside_it() -> None:
    positions = Positions(offsets={("b", 1): 7, ("b", 0): 12}, topic_ids={"b": "ff"}, initial=True)
    assert json.dumps(positions.to_json()) == '{"b": {"0": 12, "1": 7}, "@ids": {"b": "ff"}, "@initial": true}'


@given(OFFSETS, st.booleans(), st.none() | OFFSETS)
def test_positions_survive_json(offsets: dict, initial: bool, started_at: dict | None) -> None:
    positions = Positions(offsets=offsets, topic_ids={"a": "00"}, initial=initial, started_at=started_at)
    text = json.dumps(positions.to_json())
    assert Positions.from_json(json.loads(text)) == positions


def test_the_first_micro_batch_begins_where_it_began_before_the_crash() -> None:
    now = Positions(offsets={("a", 0): 99}, initial=True)
    first_end = Positions(offsets={("a", 0): 50}, started_at={("a", 0): 10})
    assert now.true_start(first_end).offsets == {("a", 0): 10}
    second_end = Positions(offsets={("a", 0): 70})
    assert first_end.true_start(second_end).offsets == {("a", 0): 50}


def test_a_limit_is_shared_by_lag() -> None:
    start = {("a", 0): 0, ("a", 1): 0, ("a", 2): 5}
    end = {("a", 0): 900, ("a", 1): 100, ("a", 2): 5}
    assert limited(start, end, 100) == {("a", 0): 90, ("a", 1): 10, ("a", 2): 5}
    assert limited(start, end, 5000) == end


def test_shares_add_up_to_the_limit() -> None:
    start = {("a", partition): 0 for partition in range(4)}
    end = {("a", 0): 333, ("a", 1): 334, ("a", 2): 166, ("a", 3): 167}
    assert sum(limited(start, end, 500).values()) == 500


@given(
    st.dictionaries(PLACES, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=10),
    st.integers(1, 500),
)
def test_a_limit_moves_every_lagging_partition_and_never_too_far(spans: dict, limit: int) -> None:
    start = {place: first for place, (first, _) in spans.items()}
    end = {place: first + lag for place, (first, lag) in spans.items()}
    chosen = limited(start, end, limit)
    lagging = [place for place in end if end[place] > start[place]]
    assert set(chosen) == set(end)
    assert all(start[place] < chosen[place] <= end[place] for place in lagging)
    assert all(chosen[place] == end[place] for place in end if place not in lagging)
    assert sum(chosen[place] - start[place] for place in lagging) <= max(limit, limit + len(lagging))


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 20))
def test_a_split_range_is_the_range(start: int, length: int, parts: int) -> None:
    pieces = split_range(start, start + length, parts)
    assert pieces[0][0] == start
    assert pieces[-1][1] == start + length
    assert all(left[1] == right[0] for left, right in pairwise(pieces))
    assert length == 0 or all(first < end for first, end in pieces)


def test_digest_depends_on_every_byte() -> None:
    assert digest("a") == digest("a") != digest("b")
    assert len(digest("")) == 32


def test_an_even_limit_lets_short_partitions_finish_first() -> None:
    start = {("t", 0): 10, ("s", 0): 0, ("s", 1): 0, ("done", 0): 7}
    end = {("t", 0): 30, ("s", 0): 1000, ("s", 1): 400, ("done", 0): 7}
    assert evenly_limited(start, end, 300) == {("t", 0): 30, ("s", 0): 140, ("s", 1): 140, ("done", 0): 7}
    assert evenly_limited(start, end, 5000) == end
    assert evenly_limited(start, end, 1) == {("t", 0): 11, ("s", 0): 1, ("s", 1): 1, ("done", 0): 7}
