"""Topologies with a path back into their own sub-topology: tasks give the driver's answer, however the log is cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from suiro.protocol.murmur2 import partition_for_key
from suiro.streams import (
    JoinWindows,
    Materialized,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    explain,
    serdes,
)
from suiro.streams.dsl.loops import without_loops
from suiro.streams.serdes import AvroSerde
from suiro.streams.topology.nodes import Repartition
from suiro.streams.topology.topology import Topology
from suiro.streams_spark.plan import plan
from suiro.testing import TopologyTestDriver

from .test_column_task import PARTITIONS, Engine

KEYS = "abcdef"
Make = Callable[[StreamsBuilder], None]


def first(value: int) -> str:
    return KEYS[value // 10 % 6]


def second(value: int) -> str:
    return KEYS[value % 6]


def pair(one: Any, other: Any) -> str:
    return f"{one} {other}"


class FractionSerde:
    name = "fraction"

    def serialize(self, topic: str, value: Fraction) -> bytes:
        return str(value).encode()

    def deserialize(self, topic: str, data: bytes) -> Fraction:
        return Fraction(data.decode())


def boss_of_boss(builder: StreamsBuilder) -> None:
    people = builder.table("table")
    bosses = people.left_join(people, pair, foreign_key=first, value=serdes.string)
    bosses.join(people, pair, value=serdes.string).to_stream().to("out")


def by_key_and_by_foreign_key(builder: StreamsBuilder) -> None:
    one, other = builder.table("table"), builder.table("stream")
    by_key = one.join(other, lambda one, other: one + other)
    by_key.left_join(other, pair, foreign_key=second, value=serdes.string).to_stream().to("out")


def one_table_by_two_keys(builder: StreamsBuilder) -> None:
    flights, airports = builder.stream("stream"), builder.table("table", materialized=Materialized.as_("airports"))
    once = flights.select_key(lambda key, value: first(value)).left_join(airports, lambda own, row: (own, row))
    twice = once.select_key(lambda key, value: second(value[0])).left_join(airports, pair)
    twice.to("out", value=serdes.string)


def three_times(builder: StreamsBuilder) -> None:
    stream, table = builder.stream("stream"), builder.table("table")
    for key in (first, second, first):
        moved = stream.select_key(lambda _, value, key=key: key(value), key=serdes.string)
        stream = moved.join(table, lambda own, row: own + row)
    stream.map_values(str).to("out", value=serdes.string)


def versions(builder: StreamsBuilder) -> None:
    table = builder.table("table", materialized=Materialized.versioned("versions", history="1 hour"))
    once = builder.stream("stream").select_key(lambda key, value: first(value))
    once = once.left_join(table, lambda own, row: own + (row or 0))
    once.select_key(lambda key, value: second(value)).left_join(table, pair).to("out", value=serdes.string)


def counts_join_their_stream(builder: StreamsBuilder) -> None:
    """The stream goes to the join by one more repartition."""
    stream = builder.stream("stream")
    counts = stream.group_by(lambda key, value: first(value)).count().to_stream()
    rows = counts.select_key(lambda key, value: KEYS[value % 6], key=serdes.string).to_table()
    stream.filter(lambda key, value: True).left_join(rows, pair).to("out", value=serdes.string)


def counts_join_a_repartition(builder: StreamsBuilder) -> None:
    stream = builder.stream("stream").select_key(lambda key, value: second(value), key=serdes.string).repartition()
    counts = stream.group_by(lambda key, value: first(value)).count().to_stream()
    rows = counts.select_key(lambda key, value: KEYS[value % 6], key=serdes.string).to_table()
    stream.join(rows, pair).to("out", value=serdes.string)


def joined_with_what_it_became(builder: StreamsBuilder) -> None:
    stream = builder.stream("stream")
    counts = stream.group_by(lambda key, value: first(value)).count().to_stream()
    moved = counts.select_key(lambda key, value: KEYS[value % 6], key=serdes.string)
    windows = JoinWindows.of(before=3, after=3, grace=1000)
    stream.join(moved, pair, windows).to("out", value=serdes.string)


def counts_of(stream: Any, by: Callable[[int], str] = first) -> Any:
    """A table whose keys are counts of the stream: a path back to what reads the stream."""
    counts = stream.group_by(lambda key, value: by(int(value))).count().to_stream()
    return counts.select_key(lambda key, value: KEYS[value % 6], key=serdes.string).to_table()


def counts_join_results_of_a_join(builder: StreamsBuilder) -> None:
    stream = builder.stream("stream").join(builder.table("table"), lambda own, row: own + row)
    stream.left_join(counts_of(stream), pair).to("out", value=serdes.string)


def counts_join_values_of_a_type(builder: StreamsBuilder) -> None:
    """The way of the values to the join is written with the serde that the user gives."""
    stream = builder.stream("stream").map_values(Fraction, value=FractionSerde())
    stream.join(counts_of(stream), pair).to("out", value=serdes.string)


def two_counts_join_their_stream(builder: StreamsBuilder) -> None:
    stream = builder.stream("stream").select_key(lambda key, value: second(value), key=serdes.string).repartition()
    for by in (first, second):
        stream.join(counts_of(stream, by), pair).to("out", value=serdes.string)


def counts_of_a_branch_join_the_other(builder: StreamsBuilder) -> None:
    ways = builder.stream("stream").split().branch(lambda key, value: value % 2 == 0, "even").default_branch("odd")
    ways["even"].join(counts_of(ways["odd"]), pair).to("out", value=serdes.string)


def a_processor_names_its_child(builder: StreamsBuilder) -> None:
    class ToChild:
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Any) -> None:
            self.context.forward(record, "joined")
            self.context.forward(record, "counted")

    stream = builder.stream("stream").process_values(ToChild)
    counted = counts_of(stream.filter(lambda key, value: True, name="counted"))
    stream.filter(lambda key, value: True, name="joined").join(counted, pair).to("out", value=serdes.string)


def a_table_meets_what_it_became(builder: StreamsBuilder) -> None:
    """The table has no store that could have a copy."""
    table = builder.table("table").filter(lambda key, value: value % 3 > 0)
    moved = table.to_stream().select_key(lambda key, value: second(value or 0), key=serdes.string).repartition()
    numbers = table.to_stream().merge(moved).group_by_key().count().to_stream()
    numbers.map_values(str).to("out", value=serdes.string)


LOOPS: dict[str, Make] = {
    make.__name__: make
    for make in (
        *(boss_of_boss, by_key_and_by_foreign_key, one_table_by_two_keys, three_times, versions),
        *(counts_join_their_stream, counts_join_a_repartition, joined_with_what_it_became),
        *(counts_join_results_of_a_join, counts_join_values_of_a_type, two_counts_join_their_stream),
        *(counts_of_a_branch_join_the_other, a_processor_names_its_child, a_table_meets_what_it_became),
    )
}
TABLES = (boss_of_boss, by_key_and_by_foreign_key)
AT_ONE_TIMESTAMP = (counts_join_their_stream, counts_join_values_of_a_type)
"""A task takes the count of a record before the record."""
Drawn = list[tuple[str, str, int | None, int]]


def built(make: Make) -> Topology:
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    make(builder)
    return builder.build()


def in_driver(topology: Topology, records: Drawn) -> list[Any]:
    with TopologyTestDriver(topology) as driver:
        for topic, key, value, time in records:
            if topic in topology.source_topics:
                driver.create_input_topic(topic).pipe_input(key, value, time)
        return [(one.key, one.value, one.timestamp) for one in driver.create_output_topic("out").read_records_to_list()]


def in_tasks(topology: Topology, run: str, records: Drawn, cuts: list[int]) -> list[Any]:
    engine = Engine(topology, run, coalesces=False)
    found = []
    ends = [*cuts, len(records)]
    for begin, end in zip([0, *cuts], ends, strict=True):
        batch: Any = {}
        for topic, key, value, time in records[begin:end]:
            place = topic, partition_for_key(key.encode(), PARTITIONS)
            batch.setdefault(place, ([], False))[0].append((key, value, time))
        later = {(topic, partition_for_key(key.encode(), PARTITIONS)) for topic, key, *_ in records[end:]}
        batch = {place: (rows, place in later) for place, (rows, _) in batch.items()} | {
            place: ([], True) for place in later - batch.keys()
        }
        batch = {place: item for place, item in batch.items() if place[0] in topology.source_topics}
        for topic, key, value, time, _ in engine.batch(batch, 10):
            if topic == "out":
                text = None if value is None else serdes.string.deserialize("", value)
                found.append((key.decode(), text, time // 1000))
    return found


@pytest.mark.parametrize("make", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("seed", range(4))
def test_tasks_give_the_answer_of_the_driver_for_every_cut(make: Make, seed: int) -> None:
    drawn = random.Random(seed)
    records: Drawn = []
    for time in range(1, 120):
        topic = drawn.choice(("stream", "table"))
        is_deleted = drawn.random() < 0.1 and (topic == "table" or make in TABLES)
        records.append((topic, drawn.choice(KEYS), None if is_deleted else drawn.randrange(99), time))
    topology = built(make)
    want = in_driver(topology, records)
    whole = in_tasks(topology, "whole", records, [])
    parts = in_tasks(topology, "parts", records, sorted(drawn.sample(range(1, 118), 5)))
    if make in TABLES:
        want, whole, parts = ({key: value for key, value, _ in found} for found in (want, whole, parts))
    else:
        want, whole, parts = (sorted(found, key=str) for found in (want, whole, parts))
    assert whole == parts
    if make not in AT_ONE_TIMESTAMP:
        assert want == whole


def _processors_share_a_store(builder: StreamsBuilder) -> None:
    class Passes:
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Any) -> None:
            self.context.forward(record)

    builder.add_state_store("shared", key=serdes.string, value=serdes.long)
    once = builder.stream("stream").process(Passes, "shared").repartition(name="between")
    once.process(Passes, "shared").to("out")


def _windows_are_joined_deeper(builder: StreamsBuilder) -> None:
    stream = builder.stream("stream")
    counts = stream.group_by_key().windowed_by(TimeWindows.of_size(10)).count()
    moved = counts.to_stream().map(lambda key, value: (key.key, value), key=serdes.string, value=serdes.long)
    again = moved.repartition(name="between").group_by_key().windowed_by(TimeWindows.of_size(10)).count()
    counts.join(again, pair, value=serdes.string).to_stream().to("out")


@pytest.mark.parametrize("make", [_processors_share_a_store, _windows_are_joined_deeper])
def test_what_cannot_be_divided_is_refused_and_explained(make: Make) -> None:
    """Within a micro-batch, none of its sub-topologies could run first."""
    topology, why = built(make), "records that pass between-repartition come back to where they were"
    with pytest.raises(TopologyError, match=why):
        plan(topology, "app", {"stream": 2})
    assert explain(topology).startswith(f"does not run on Spark: {why}")


def test_a_copy_is_written_with_the_serde_of_the_keys_that_it_meets() -> None:
    """Serdes of a registry give way to others in stores, and in topics between tasks for values only."""
    builder = StreamsBuilder(key=serdes.avro, value=serdes.avro)
    flights, airports = builder.stream("flights"), builder.table("airports")
    once = flights.select_key(lambda key, value: value, key=serdes.avro).join(airports, pair)
    once.select_key(lambda key, value: value, key=serdes.avro).join(airports, pair).to("out")
    divided = without_loops(builder.build())
    cuts = [node.operator for node in divided.nodes if isinstance(node.operator, Repartition)]
    assert [type(cut.key) for cut in cuts] == [AvroSerde] * 3
    assert "KTABLE-SOURCE-0000000003-copy-1-repartition" in divided.describe()


def test_a_copy_has_no_changelog_and_what_needs_none_has_none() -> None:
    made = plan(built(one_table_by_two_keys), "app", {"stream": 2, "table": 2})
    assert [(sub.level, sub.tasks) for sub in made.subs] == [(0, 2), (1, 2), (2, 2)]
    assert [topic.name for topic in made.internal_topics] == ["app-airports-changelog"]
    assert {spec.name for spec in made.topology.stores} == {"airports", "airports-copy-1"}
    topology = made.topology
    assert without_loops(topology) is topology
