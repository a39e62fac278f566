"""What is told of a changed topology's state is what a start then does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from suiro.streams import (
    JoinWindows,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyError,
    serdes,
)
from suiro.streams_spark.description import Fate, check_description, upgrade_of
from suiro.streams_spark.plan import plan

Build = Callable[[Any], Any]


def counted(stream: Any) -> None:
    stream.group_by_key().count().to_stream().to("out")


def named(stream: Any) -> None:
    stream.group_by_key().count(name="count", materialized=Materialized.as_("counts")).to_stream().to("out")


def of_other_keys(stream: Any) -> None:
    stream.group_by(lambda key, value: value).count(
        name="count", materialized=Materialized.as_("counts")
    ).to_stream().to("out")


def reduced(stream: Any) -> None:
    stream.group_by_key().reduce(max).to_stream().to("out")


def windowed(stream: Any) -> None:
    stream.group_by_key().windowed_by(TimeWindows.of_size(10)).count().to_stream().to("others")


def in_sessions(stream: Any) -> None:
    stream.group_by_key().windowed_by(SessionWindows.of_gap(10)).count().to_stream().to("others")


def joined(stream: Any) -> None:
    windows = JoinWindows.of_time_difference(10)
    stream.join(stream.map_values(str.upper), lambda one, other: one + other, windows).to("out")


def repartitioned(stream: Any) -> None:
    stream.repartition(name="spread").to("others")


def twice(stream: Any) -> None:
    counted(stream)
    stream.group_by(lambda key, value: value).count().to_stream().to("others")


def deeper(build: Build) -> Build:
    return lambda stream: build(stream.map_values(str.upper))


BUILDS = {
    "counted": counted,
    "counted deeper": deeper(counted),
    "named": named,
    "named deeper": deeper(named),
    "of other keys": of_other_keys,
    "reduced": reduced,
    "windowed": windowed,
    "in sessions": in_sessions,
    "joined": joined,
    "repartitioned": repartitioned,
    "named and repartitioned": lambda stream: (named(stream), repartitioned(stream)),
    "of other keys and repartitioned": lambda stream: (of_other_keys(stream), repartitioned(stream)),
    "twice": twice,
    "twice deeper": deeper(twice),
    "without state": lambda stream: stream.to("out"),
}


def topology(build: Build) -> Topology:
    builder = StreamsBuilder()
    build(builder.stream("in", key=serdes.string, value=serdes.string))
    return builder.build()


def starts_on_the_state_of(old: Topology, new: Topology, place: Path) -> bool:
    check_description(plan(old, "app", {"in": 2}), place)
    (place / "commits").mkdir()
    (place / "commits" / "0").touch()
    try:
        check_description(plan(new, "app", {"in": 2}), place)
    except TopologyError:
        return False
    return True


def test_what_is_told_is_what_a_start_does(tmp_path: Path) -> None:
    for before, after in product(BUILDS, BUILDS):
        old, new = topology(BUILDS[before]), topology(BUILDS[after])
        does_start = starts_on_the_state_of(old, new, tmp_path / f"{before} to {after}")
        assert upgrade_of(old, new).carries_over == does_start, (before, after)


@pytest.mark.parametrize("build", [counted, windowed])
def test_names_that_are_told_keep_the_state(tmp_path: Path, build: Build) -> None:
    old = topology(build)
    found = upgrade_of(old, topology(deeper(build)))
    assert (found.carries_over, found.names_suffice) == (False, True)
    said = {one.kind: one.said.partition("keep that name with ")[2] for one in found.items}
    store, operator = (said[kind].split('"')[1] for kind in ("store", "operator"))

    def with_its_names(stream: Any) -> None:
        grouped = stream.map_values(str.upper).group_by_key()
        if build is windowed:
            grouped = grouped.windowed_by(TimeWindows.of_size(10))
        grouped.count(name=operator, materialized=Materialized.as_(store))

    assert starts_on_the_state_of(old, topology(with_its_names), tmp_path)


def test_stores_that_may_be_meant_are_asked_for() -> None:
    found = {one.name: one for one in upgrade_of(topology(counted), topology(named)).items}
    assert found["counts"].fate is Fate.REBUILT
    assert "could be KSTREAM-AGGREGATE-STATE-STORE-0000000001 under another name" in found["counts"].said


def test_topics_that_come_and_go() -> None:
    def other(builder: StreamsBuilder) -> None:
        builder.stream("more", key=serdes.string, value=serdes.string).to("results")

    builder = StreamsBuilder()
    other(builder)
    found = upgrade_of(topology(lambda stream: stream.to("out")), builder.build())
    assert {(one.kind, one.name, one.fate) for one in found.items} == {
        ("source", "more", Fate.FROM_ITS_BEGINNING),
        ("source", "in", Fate.LEFT),
        ("sink", "results", Fate.FROM_NOW_ON),
        ("sink", "out", Fate.LEFT),
    }
    assert found.carries_over


def test_a_copy_in_a_loop_goes_on_under_the_name_of_what_it_is_a_copy_of() -> None:
    def build(*, filtered: bool, **names: Any) -> Topology:
        builder = StreamsBuilder(key=serdes.string, value=serdes.string)
        stream = builder.stream("in")
        if filtered:
            stream = stream.filter(lambda key, value: True)
        table = builder.table("table", **names)
        for number in "12":
            moved = stream.select_key(lambda key, value: value)
            stream = moved.left_join(table, lambda one, _: one, name=f"joined{number}" if names else None)
        stream.to("out")
        return builder.build()

    told = upgrade_of(build(filtered=False), build(filtered=True))
    assert told.names_suffice
    copies = [item.said for item in told.items if "-copy-" in item.name]
    assert [said[said.index("with ") :] for said in copies] == [
        'with Materialized.as_("table-STATE-STORE-0000000001")',
        'with name="KTABLE-SOURCE-0000000003"',
    ]
    named = {"name": "table", "materialized": Materialized.as_("rows")}
    assert upgrade_of(build(filtered=False, **named), build(filtered=True, **named)).carries_over
