"""Changed code meets old state: what may change, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suiro.streams import (
    Materialized,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    serdes,
)
from suiro.streams_spark.description import check_description
from suiro.streams_spark.plan import plan

Build = Callable[[Any], Any]


def check(place: Path, build: Build, *, partitions: int = 2) -> None:
    builder = StreamsBuilder()
    build(builder.stream("in", key=serdes.string, value=serdes.string))
    check_description(plan(builder.build(), "app", {"in": partitions}), place)


def counted(stream: Any) -> Any:
    return stream.group_by_key().count(name="count", materialized=Materialized.as_("counts"))


def windowed(size: int, grace: int = 0) -> Build:
    def build(stream: Any) -> Any:
        windows = TimeWindows.of_size(size, grace=grace)
        return stream.group_by_key().windowed_by(windows).count(materialized=Materialized.as_("windows"))

    return build


def unnamed(stream: Any) -> Any:
    return stream.group_by_key().count()


def deeper(build: Build) -> Build:
    """The same behind an operator without state."""
    return lambda stream: build(stream.map_values(str.upper))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (counted, counted),
        (counted, deeper(counted)),
        (counted, lambda stream: counted(stream).filter(bool).to_stream().to("out")),
        (windowed(10, grace=0), windowed(10, grace=5)),
        (unnamed, lambda stream: unnamed(stream).to_stream().to("out")),
    ],
)
def test_what_has_no_state_may_change(tmp_path: Path, before: Build, after: Build) -> None:
    check(tmp_path, before)
    check(tmp_path, after)


def reduced(stream: Any) -> Any:
    return stream.group_by_key().reduce(max, name="count", materialized=Materialized.as_("counts"))


def summed(stream: Any) -> Any:
    return stream.group_by_key().aggregate(
        lambda: 0,
        lambda key, value, total: total + len(value),
        name="count",
        materialized=Materialized.as_("counts", value=serdes.long),
    )


def in_sessions(stream: Any) -> Any:
    windows = SessionWindows.of_gap(10)
    return stream.group_by_key().windowed_by(windows).count(materialized=Materialized.as_("windows"))


def twice(stream: Any) -> None:
    counted(stream)
    stream.group_by_key().count(materialized=Materialized.as_("others"))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (counted, reduced, r"store counts: value was long, is string; operator count: does was count"),
        (counted, summed, r"operator count: does was count, is aggregate"),
        (
            windowed(10),
            windowed(20),
            r"store windows: window_size_ms was 10, is 20; .*size_ms=10, .*size_ms=20",
        ),
        (windowed(10), in_sessions, r"store windows: kind was window, is session"),
        (twice, counted, r"store others is gone; .*operator KSTREAM-AGGREGATE-\d+ is gone.*name="),
        (counted, twice, r"store others is new"),
        (
            unnamed,
            deeper(unnamed),
            r"STATE-STORE-0000000001 is KSTREAM-AGGREGATE-STATE-STORE-0000000002 now; "
            r"operator KSTREAM-AGGREGATE-0000000002 is KSTREAM-AGGREGATE-0000000003 now\. Generated names .*as_",
        ),
        (
            unnamed,
            lambda stream: stream.group_by_key().reduce(max),
            r"store KSTREAM-AGGREGATE-STATE-STORE-0000000001 is gone; .*Generated names",
        ),
    ],
)
def test_changed_state_is_refused_by_name(tmp_path: Path, before: Build, after: Build, said: str) -> None:
    check(tmp_path, before)
    kept = (tmp_path / "suiro-topology.json").read_text()
    with pytest.raises(TopologyError, match=said) as caught:
        check(tmp_path, after)
    for choice in ("Put back what changed", "a new application id", "suiro run --rebuild"):
        assert choice in str(caught.value)
    assert (tmp_path / "suiro-topology.json").read_text() == kept
    check(tmp_path, before)


def test_a_serde_is_part_of_the_state(tmp_path: Path) -> None:
    def table(value: Any) -> Build:
        return lambda stream: stream.map_values(len).to_table(
            materialized=Materialized.as_("lengths", value=value), name="table"
        )

    check(tmp_path, table(serdes.long))
    with pytest.raises(TopologyError, match="store lengths: value was long, is json"):
        check(tmp_path, table(serdes.json))


def test_more_partitions_are_told(tmp_path: Path) -> None:
    check(tmp_path, counted)
    with pytest.raises(TopologyError, match="store counts: partitions was 2, is 3"):
        check(tmp_path, counted, partitions=3)


def test_only_named_state_has_no_word_about_names(tmp_path: Path) -> None:
    check(tmp_path, counted)
    with pytest.raises(TopologyError) as caught:
        check(tmp_path, summed)
    assert "Generated names" not in str(caught.value)
