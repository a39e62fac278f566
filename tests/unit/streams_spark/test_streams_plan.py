"""Which sub-topologies run where, and how wide they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from suiro.spark import OffsetRange
from suiro.streams import JoinWindows, Materialized, StreamsBuilder, TimeWindows, TopologyError, serdes
from suiro.streams_spark.plan import Plan, plan
from suiro.streams_spark.shuffle_message import InputRange
from suiro.streams_spark.source import shared_out

TEXT = {"key": serdes.string, "value": serdes.string}


def planned(make: Callable[[StreamsBuilder], Any], **counts: int) -> Plan:
    builder = StreamsBuilder()
    make(builder)
    return plan(builder.build(), "app", counts)


def places(made: Plan) -> list[tuple[int, int]]:
    """(level, tasks) of each sub-topology."""
    return [(sub.level, sub.tasks) for sub in made.subs]


def test_a_stateless_topology_runs_in_the_source_tasks() -> None:
    made = planned(lambda b: b.stream("a", **TEXT).filter(lambda k, v: True).to("b"), a=3)
    assert places(made) == [(0, 3)]
    assert made.levels == 0
    assert made.internal_topics == []


def test_an_extractor_needs_a_bucket_that_remembers_the_partitions_time() -> None:
    made = planned(lambda b: b.stream("a", timestamp=lambda r, t: r.timestamp, **TEXT).to("b"), a=2)
    assert places(made) == [(1, 2)]


def test_a_count_by_another_key_is_one_level_behind_a_stateless_source() -> None:
    made = planned(lambda b: b.stream("a", **TEXT).group_by(lambda k, v: v).count().to_stream().to("b"), a=4)
    assert sorted(places(made)) == [(0, 4), (1, 4)]


def test_levels_are_as_deep_as_state_follows_state() -> None:
    def make(builder: StreamsBuilder) -> None:
        counts = builder.stream("a", **TEXT).group_by_key().count()
        by_count = counts.group_by(lambda key, count: (count, key), key=serdes.long, value=serdes.string)
        by_count.count().to_stream().to("b")

    assert sorted(places(planned(make, a=2))) == [(1, 2), (2, 2)]


def test_a_repartition_with_a_number_sets_the_width_and_makes_a_topic() -> None:
    def make(builder: StreamsBuilder) -> None:
        stream = builder.stream("a", **TEXT).repartition(name="wide", partitions=6)
        stream.group_by_key().count(materialized=Materialized.as_("counts")).to_stream().to("b")

    made = planned(make, a=2)
    assert sorted(places(made)) == [(0, 2), (1, 6)]
    assert {topic.name: (topic.partitions, topic.configs["cleanup.policy"]) for topic in made.internal_topics} == {
        "app-counts-changelog": (6, "compact"),
        "app-wide-repartition": (6, "delete"),
    }


@pytest.mark.parametrize(("asked_for", "partitions"), [(8, 8), (None, 3)])
def test_a_repartition_that_nothing_reads_has_its_partitions(asked_for: int | None, partitions: int) -> None:
    """Others read its topic."""
    made = planned(lambda b: b.stream("a", **TEXT).repartition(name="wide", partitions=asked_for), a=3)
    assert [topic.partitions for topic in made.internal_topics] == [partitions]


def test_a_repartition_with_a_number_has_it_beside_a_wider_topic() -> None:
    """As in Kafka Streams 4.3.1: the tasks are four, and two of them get records of the repartition."""

    def make(builder: StreamsBuilder) -> None:
        narrow = builder.stream("a", **TEXT).repartition(name="two", partitions=2)
        narrow.merge(builder.stream("b", **TEXT)).group_by_key().count(materialized=Materialized.as_("c"))

    made = planned(make, a=1, b=4)
    assert sorted(places(made)) == [(0, 1), (1, 4)]
    assert {topic.name: topic.partitions for topic in made.internal_topics} == {
        "app-c-changelog": 4,
        "app-two-repartition": 2,
    }


def test_changelogs_of_windows_lose_rows_by_deletion_only() -> None:
    """A retention by the wall clock would take rows of long ago, which the store has."""

    def make(builder: StreamsBuilder) -> None:
        windows = builder.stream("a", **TEXT).group_by_key().windowed_by(TimeWindows.of_size("1 minute"))
        windows.count(materialized=Materialized.as_("w")).to_stream().to("b")

    (topic,) = planned(make, a=1).internal_topics
    assert topic.configs == {"cleanup.policy": "compact"}


def test_topics_of_different_widths_cannot_be_joined() -> None:
    def make(builder: StreamsBuilder) -> None:
        one, two = builder.stream("a", **TEXT), builder.stream("b", **TEXT)
        windows = JoinWindows.of_time_difference(10)
        one.join(two, lambda left, right: left, windows).to("c")

    assert places(planned(make, a=2, b=2)) == [(1, 2)]
    with pytest.raises(TopologyError, match=r"a \(2\), b \(3\)"):
        planned(make, a=2, b=3)


@pytest.mark.parametrize(("stream", "table"), [(4, 2), (2, 6)])
def test_a_repartition_without_a_number_is_as_wide_as_what_it_is_joined_with(stream: int, table: int) -> None:
    def make(builder: StreamsBuilder) -> None:
        rows = builder.table("table", **TEXT)
        by_value = builder.stream("a", **TEXT).select_key(lambda key, value: value).repartition(name="moved")
        by_value.join(rows, lambda left, right: left).to("b")

    made = planned(make, a=stream, table=table)
    assert sorted(places(made)) == sorted([(0, stream), (1, table)])
    assert {topic.name: topic.partitions for topic in made.internal_topics}["app-moved-repartition"] == table


def test_a_repartition_with_a_number_does_not_adapt() -> None:
    def make(builder: StreamsBuilder) -> None:
        rows = builder.table("table", **TEXT)
        by_value = builder.stream("a", **TEXT).repartition(name="moved", partitions=3)
        by_value.join(rows, lambda left, right: left).to("b")

    with pytest.raises(TopologyError, match=r"moved-repartition \(3\)|moved \(3\)"):
        planned(make, a=2, table=2)


@pytest.mark.parametrize(("left", "right"), [(2, 5), (5, 2)])
def test_the_tables_of_a_foreign_key_join_keep_their_widths(left: int, right: int) -> None:
    def make(builder: StreamsBuilder) -> None:
        rows = builder.table("left", **TEXT)
        others = builder.table("right", **TEXT)
        rows.join(others, lambda one, other: one, foreign_key=lambda value: value).to_stream().to("b")

    assert {sub.tasks for sub in planned(make, left=left, right=right).subs} == {2, 5}


def test_only_operators_that_look_at_time_are_told_of_it() -> None:
    def counted(builder: StreamsBuilder) -> None:
        builder.stream("a", **TEXT).group_by_key().count().to_stream().to("b")

    def windowed(builder: StreamsBuilder) -> None:
        grouped = builder.stream("a", **TEXT).group_by_key()
        grouped.windowed_by(TimeWindows.of_size(10)).count().to_stream().to("b")

    assert [sub.follows_time for sub in planned(counted, a=1).subs] == [False]
    assert [sub.follows_time for sub in planned(windowed, a=1).subs] == [True]


def input_partitions(*sizes: int) -> list[InputRange]:
    return [
        InputRange(records=OffsetRange(topic="a", partition=number, start=0, end=size))
        for number, size in enumerate(sizes)
    ]


def test_few_records_are_one_tasks_and_many_are_shared() -> None:
    assert [
        len(work.input_partitions) for work in shared_out(input_partitions(10, 10, 10, 10), None, 4, ticks=False)
    ] == [4]
    work = shared_out(input_partitions(300_000, 100_000, 90_000, 110_000), None, 2, ticks=False)
    assert [sum(item.records.end for item in one.input_partitions) for one in work] == [300_000, 300_000]
    assert shared_out([], None, 2, ticks=False) == []


def test_the_clock_comes_by_without_a_record() -> None:
    (work,) = shared_out([], 17, 2, ticks=True)
    assert (work.input_partitions, work.clock, work.ticks) == ((), 17, True)


def test_nothing_is_done_where_the_clock_is_only_told_with_records() -> None:
    assert shared_out([], 17, 2, ticks=False) == []
    (work,) = shared_out(input_partitions(10), 17, 2, ticks=False)
    assert (work.clock, work.ticks) == (17, False)


def test_a_partition_that_came_later_has_no_state_and_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("counted", key=serdes.string, value=serdes.string).group_by_key().count()
    builder.stream("copied", key=serdes.string, value=serdes.string).to("out")
    made = plan(builder.build(), "app", {"counted": 2, "copied": 2})
    made.require_known([("counted", 0), ("counted", 1), ("copied", 5)])
    with pytest.raises(TopologyError, match="topic 'counted' has a partition 2 now, and 'app' has state for 2"):
        made.require_known([("counted", 2)])
