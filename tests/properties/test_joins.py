"""Joins against their definitions by brute force, and runs that forget everything but their maps after every record."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.share import examples

from suiro.streams.topology.nodes import JoinType
from suiro.streams.topology.topology import Topology
from suiro.streams.windows import JoinWindows
from tests.support.join_topologies import Plan, Row, Run, pair

Step = tuple[str, Any, Any, int]  # topic, key, value, timestamp

JOINS: list[JoinType] = ["inner", "left", "outer"]
keys = st.sampled_from(["a", "b"])
sides = st.sampled_from(["L", "R"])


def _numbered(drawn: list[tuple[str, Any, bool, int]]) -> list[Step]:
    """Values that tell where they came from; False is a null value."""
    return [
        (topic, key, f"{topic.lower()}{number}" if there else None, time)
        for number, (topic, key, there, time) in enumerate(drawn)
    ]


def steps(*, max_time: int = 40, nulls: bool = True, size: int = 25) -> st.SearchStrategy[list[Step]]:
    key = st.sampled_from(["a", "b", None]) if nulls else keys
    there = st.sampled_from([True, True, False]) if nulls else st.just(True)
    return st.lists(st.tuples(sides, key, there, st.integers(0, max_time)), max_size=size).map(_numbered)


def _sent(topology: Topology, given_steps: list[Step], *, forgets: bool = False) -> list[Row]:
    run = Run(topology, forgets=forgets)
    return [row for step in given_steps for row in run.send(*step)]


# -- streams ---------------------------------------------------------------------------------------------------


def _streams(join: JoinType, windows: JoinWindows) -> Topology:
    plan = Plan()
    plan.to("out", plan.stream_stream(join, plan.stream("L"), plan.stream("R"), windows), table=False)
    return plan.topology()


def _joined(join: JoinType, given_steps: list[Step], windows: JoinWindows) -> Counter[Row]:
    left = [step for step in given_steps if step[0] == "L"]
    right = [step for step in given_steps if step[0] == "R"]
    found: Counter[Row] = Counter()
    matched = set()
    for _, key, value, time in left:
        for _, other_key, other, other_time in right:
            if key == other_key and time - windows.before_ms <= other_time <= time + windows.after_ms:
                found[(key, pair(value, other), max(time, other_time))] += 1
                matched |= {value, other}
    for _, key, value, time in left if join != "inner" else []:
        if value not in matched:
            found[(key, pair(value, None), time)] += 1
    for _, key, value, time in right if join == "outer" else []:
        if value not in matched:
            found[(key, pair(None, value), time)] += 1
    return found


@pytest.mark.parametrize("join", JOINS)
@given(data=st.data())
@settings(max_examples=examples(150))
def test_streams_in_order_are_joined_as_defined(join: JoinType, data: st.DataObject) -> None:
    before = data.draw(st.integers(-4, 8), label="before")
    after = data.draw(st.integers(max(-4, -before), 8), label="after")
    # A store of a narrow window would forget records of the same time too early, as in Kafka Streams.
    grace = data.draw(st.integers(0 if min(before, after) > 0 else 20, 20), label="grace")
    windows = JoinWindows.of(before=before, after=after, grace=grace)
    ordered = sorted(data.draw(steps(nulls=False)), key=lambda step: step[3])
    end: list[Step] = [("L", "end", "end", 1000), ("R", "end", "end", 1000)]
    rows = _sent(_streams(join, windows), ordered + end)
    rows = [row for row in rows if row[0] != "end"]
    assert Counter(rows) == _joined(join, ordered, windows)


@given(steps(nulls=False), st.integers(1, 8), st.integers(1, 8), st.integers(0, 40))
def test_late_records_within_the_grace_lose_no_pair(drawn: list[Step], before: int, after: int, grace: int) -> None:
    windows = JoinWindows.of(before=before, after=after, grace=grace)
    taken: list[Step] = []
    for step in drawn:
        if step[3] >= max((other[3] for other in taken), default=0) - grace:
            taken.append(step)
    assert Counter(_sent(_streams("inner", windows), taken)) == _joined("inner", taken, windows)


@pytest.mark.parametrize("join", JOINS)
@given(steps(max_time=60), st.integers(-3, 8), st.integers(3, 8), st.integers(0, 8))
def test_a_join_of_streams_may_forget(join: JoinType, drawn: list[Step], before: int, after: int, grace: int) -> None:
    topology = _streams(join, JoinWindows.of(before=before, after=after, grace=grace))
    assert _sent(topology, drawn, forgets=True) == _sent(topology, drawn)


# -- a stream and a table --------------------------------------------------------------------------------------


@pytest.mark.parametrize("join", ["inner", "left"])
@given(steps(), st.integers(0, 20))
def test_stream_records_meet_the_rows_that_came_in_their_grace(join: JoinType, drawn: list[Step], grace: int) -> None:
    """Each stream record meets the rows that came until it leaves, as they were at its time."""
    plan = Plan()
    table = plan.table("R", history=100)
    plan.to("out", plan.stream_table(join, plan.stream("L"), table, versioned=True, grace=grace), table=False)
    topology = plan.topology()
    run = Run(topology)
    end: Step = ("L", "end", "end", 1000)
    found = [row for step in [*drawn, end] for row in run.send(*step) if row[0] != "end"]
    assert _sent(topology, drawn, forgets=True) == _sent(topology, drawn)
    wanted: Counter[Row] = Counter()
    for place, (topic, key, value, time) in enumerate(drawn):
        if topic == "R" or value is None:
            continue
        if key is None:
            if join == "left":
                wanted[(None, pair(value, None), time)] += 1
            continue
        leaves = len(drawn)
        clock = time
        earlier = [s[3] for s in drawn[:place] if s[0] == "L" and None not in (s[1], s[2])]
        if time < max(earlier, default=-1) - grace:
            leaves = place
        else:
            clock = max([time, *earlier])
            for later in range(place, len(drawn)):
                other = drawn[later]
                if other[0] == "L" and None not in (other[1], other[2]):
                    clock = max(clock, other[3])
                if clock - grace >= time:
                    leaves = later
                    break
        versions = {s[3]: s[2] for s in drawn[:leaves] if s[0] == "R" and s[1] == key and s[3] <= time}
        row = versions[max(versions)] if versions else None
        if row is not None or join == "left":
            wanted[(key, pair(value, row), time)] += 1
    assert Counter(found) == wanted


# -- tables ----------------------------------------------------------------------------------------------------


def _final(given_steps: list[Step], topic: str) -> dict[Any, Any]:
    rows: dict[Any, Any] = {}
    for where, key, value, _ in given_steps:
        if where == topic and key is not None:
            rows[key] = value
    return {key: value for key, value in rows.items() if value is not None}


@pytest.mark.parametrize("versions", [None, 100])
@pytest.mark.parametrize("join", JOINS)
@given(steps())
def test_tables_are_joined_as_relations(join: JoinType, versions: int | None, drawn: list[Step]) -> None:
    plan = Plan()
    versioned = versions is not None
    joined = plan.table_table(
        join,
        plan.table("L", history=versions),
        plan.table("R", history=versions),
        left_versioned=versioned,
        right_versioned=versioned,
    )
    plan.to("out", joined, table=True)
    topology = plan.topology()
    run = Run(topology)
    rows = [row for step in drawn for row in run.send(*step)]
    ordered = sorted(drawn, key=lambda step: step[3]) if versioned else drawn
    left, right = _final(ordered, "L"), _final(ordered, "R")
    keys_of = {
        "inner": left.keys() & right.keys(),
        "left": left.keys(),
        "outer": left.keys() | right.keys(),
    }[join]
    wanted = {key: pair(left.get(key), right.get(key)) for key in keys_of}
    assert dict(run.store(f"{joined}-rows").all()) == wanted
    last = {key: value for key, value, _ in rows}
    assert {key: value for key, value in last.items() if value is not None} == wanted
    assert _sent(topology, drawn, forgets=True) == rows


foreign_steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("L"),
            st.integers(1, 4),
            st.one_of(st.none(), st.sampled_from(["x", "y", "z", ""])),
            st.integers(0, 9),
        ),
        st.tuples(
            st.just("R"),
            st.sampled_from(["x", "y", "z"]),
            st.one_of(st.none(), st.sampled_from(["X", "XX"])),
            st.integers(0, 9),
        ),
    ),
    max_size=30,
)


@pytest.mark.parametrize("join", ["inner", "left"])
@given(foreign_steps)
def test_a_foreign_key_join_ends_as_the_relation(join: JoinType, drawn: list[Step]) -> None:
    plan = Plan()
    left, right = plan.table("L"), plan.table("R")
    plan.to("out", plan.foreign_key(join, left, right, lambda value: value or None), table=True)
    topology = plan.topology()
    run = Run(topology)
    rows = [row for step in drawn for row in run.send(*step)]
    lefts, rights = _final(drawn, "L"), _final(drawn, "R")
    wanted = {key: pair(value, rights.get(value)) for key, value in lefts.items() if join == "left" or value in rights}
    assert dict(run.store("join-rows").all()) == wanted
    last = {key: value for key, value, _ in rows}
    assert {key: value for key, value in last.items() if value is not None} == wanted
    assert len(run.maps()["subscriptions"]) == sum(1 for value in lefts.values() if value)
    assert _sent(topology, drawn, forgets=True) == rows
