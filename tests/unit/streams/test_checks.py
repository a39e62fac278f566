"""What is refused while a topology is built: each with a message that says what to do."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial, wraps
from operator import itemgetter
from typing import Any

import pytest
from support.kafka_streams_topologies import TOPOLOGIES, Forwarding, add, by_value, joined

from suiro.errors import UsageError
from suiro.streams import (
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyError,
    WallclockTimestampExtractor,
    aggregate,
    col,
    left,
    record_value,
    right,
    serdes,
)
from suiro.streams.durations import LONGEST_MS
from suiro.streams_spark.plan import plan
from suiro.streams_spark.program import check_picklable
from suiro.testing import TopologyTestDriver

NEAR = JoinWindows.of_time_difference("1 minute")


def refused(match: str) -> Any:
    return pytest.raises(UsageError, match=match)


def test_empty() -> None:
    with refused("the topology is empty"):
        StreamsBuilder().build()


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.filter("late"),
        lambda stream: stream.map_values(None),
        lambda stream: stream.select_key(5),
        lambda stream: stream.group_by({"a": 1}),
        lambda stream: stream.peek(col("a")),
        lambda stream: stream.process(col("a")),
        lambda stream: stream.split().branch("late"),
        lambda stream: stream.group_by_key().reduce("sum"),
        lambda stream: stream.group_by_key().aggregate(0, add),
        lambda stream: stream.group_by_key().aggregate(col("a"), add),
        lambda stream: stream.group_by_key().cogroup(None),
        lambda stream: stream.to_table().filter(True),
        lambda stream: stream.to_table().group_by("carrier"),
        lambda stream: stream.join(stream, "joiner", NEAR),
        lambda stream: stream.to_table().join(stream.to_table(), None),
        lambda stream: stream.to_table().join(stream.to_table(), joined, foreign_key="tail"),
    ],
)
def test_functions_of_a_wrong_kind(build: Callable[[Any], Any]) -> None:
    with refused(r"callable"):
        build(StreamsBuilder().stream("in"))


async def awaits_two(key: str, value: str) -> str:
    return value


class Later:
    def extract(self, record: Any) -> int:
        return 5


def process_of() -> type:
    class NoRecord:
        def process(self) -> None: ...

    return NoRecord


def init_of() -> type:
    class NoContext(Forwarding):
        def init(self) -> None: ...  # type: ignore[override]

    return NoContext


@pytest.mark.parametrize(
    ("build", "called_with"),
    [
        (lambda stream: stream.map_values(lambda key, value: value), "the mapper of map_values is called with (value)"),
        (lambda stream: stream.filter(lambda value: True), "the predicate of filter is called with (key, value)"),
        (lambda stream: stream.map_values_async(awaits_two), "the mapper of map_values_async is called with (value)"),
        (
            lambda stream: stream.group_by_key().aggregate(int, lambda total, value: total),
            "the aggregator of aggregate is called with (key, value, aggregate)",
        ),
        (lambda stream: stream.process(lambda context: None), "the supplier of process is called with ()"),
        (lambda stream: stream.process(process_of()), "process of a processor is called with (record)"),
        (lambda stream: stream.process(init_of()), "init of a processor is called with (context)"),
        (
            lambda stream: stream.to("out", partitioner=lambda key: 0),
            "the partitioner of to() is called with (topic, key, value, partitions)",
        ),
        (lambda stream: stream.repartition(partitioner=5), "the partitioner of repartition() is 5, which is not a"),
        (lambda stream: stream.map_values(left("a")), "the mapper of map_values: left('a') needs left(), but here"),
        (lambda stream: stream.filter(col("a") > left()), "the predicate of filter: "),
        (lambda stream: stream.group_by_key().reduce(col("a")), "the reducer of reduce: col('a') needs record_value()"),
        (lambda stream: stream.to(lambda key: "x"), "the topic of to() is called with (key, value, record)"),
        (
            lambda stream: stream.to_table().join(stream.to_table(), joined, foreign_key=lambda key, value: key),
            "the foreign_key of a join is called with (value)",
        ),
        (lambda stream: stream.to_table().join(stream.to_table(), max, foreign_key=str.replace), "str.replace"),
    ],
)
def test_functions_of_other_parameters(build: Callable[[Any], Any], called_with: str) -> None:
    """The application would start, and stop at its first record."""
    with refused(re.escape(called_with)):
        build(StreamsBuilder().stream("in"))


@pytest.mark.parametrize("operator", ["process", "process_values"])
def test_suppliers_that_make_no_processor_for_each_task(operator: str) -> None:
    """Tasks would share what one processor keeps."""
    one = Forwarding()
    process = getattr(StreamsBuilder().stream("in"), operator)
    with refused(f"the supplier of {operator} gave .*Forwarding.* twice; it must make a new processor each time"):
        process(lambda: one)
    with refused(f"the supplier of {operator} gave <class .*Forwarding'> twice"):
        process(lambda: Forwarding)
    with refused(f"the supplier of {operator} gave None, which has no method process"):
        process(lambda: None)
    process(lambda: Forwarding())


@pytest.mark.parametrize("given", [lambda record: 5, Later()], ids=["function", "object"])
def test_timestamp_extractors_of_other_parameters(given: Any) -> None:
    with refused(re.escape("the timestamp extractor of in is called with (record, partition_time), which")):
        StreamsBuilder().stream("in", timestamp=given)


@pytest.mark.parametrize("callback", [5, lambda: None])
def test_punctuators_of_other_parameters(callback: Any) -> None:
    class Scheduling(Forwarding):
        def init(self, context: Any) -> None:
            context.schedule("1s", "wall-clock-time", callback)

    builder = StreamsBuilder()
    builder.stream("in").process(Scheduling).to("out")
    with refused("the callback of schedule is"):
        TopologyTestDriver(builder.build())


def test_expressions_that_get_what_they_need() -> None:
    stream = StreamsBuilder().stream("in")
    stream.group_by_key().reduce(left() + right())
    stream.group_by_key().aggregate(int, aggregate() + col("a"))
    stream.group_by_key().windowed_by(SessionWindows.of_gap(1)).aggregate(
        int, aggregate(), aggregate() + record_value()
    )


def test_functions_whose_parameters_are_not_known_or_enough() -> None:
    @wraps(by_value)  # its signature is that of what it wraps
    def wrapped(value: str) -> str:
        return by_value("", value)

    stream = StreamsBuilder().stream("in")
    stream.map_values(int).map_values(wrapped).map_values(itemgetter("a")).map_values(partial(by_value, ""))
    stream.group_by_key().aggregate(dict, lambda *given: given[-1])
    stream.group_by_key().reduce(max)


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda b: b.stream(re.compile("in.*")), r"a topic is re.compile\('in.\*'\); give its name"),
        (lambda b: b.stream("in", serdes.string), "is no Consumed; give Consumed.with_"),
        (lambda b: b.stream("in").group_by_key().count(materialized="counts"), r"give Materialized.as_\('counts'\)"),
        (lambda b: b.table("in", materialized="rows"), r"give Materialized.as_\('rows'\)"),
        (lambda b: b.stream("in").to("out", serdes.string), "is no Produced; give Produced.with_"),
        (lambda b: b.stream("in").group_by_key("group"), r"'group' is no Grouped; give Grouped.as_\('group'\)"),
        (
            lambda b: b.stream("in", value=str).to("out"),
            "serde of the value of KSTREAM-SOURCE-0000000000 is <class 'str'>",
        ),
        (lambda b: b.stream("in").to("out", key=type(serdes.string)), "serde of the key of KSTREAM-SINK-0000000001 is"),
        (lambda b: b.add_state_store("s", key="string"), "serde of the key of store s is 'string'"),
    ],
)
def test_options_of_a_wrong_kind(build: Callable[[StreamsBuilder], Any], why: str) -> None:
    builder = StreamsBuilder()
    with refused(why):
        build(builder)
        builder.stream("more").peek(print)
        builder.build()


@pytest.mark.parametrize("windows", [None, TimeWindows, "1 day", NEAR])
def test_windows_without_a_size(windows: Any) -> None:
    with refused("no windows of a size"):
        StreamsBuilder().stream("in").group_by_key().windowed_by(windows)


@pytest.mark.parametrize("windows", [None, TimeWindows.of_size(5)])
def test_stream_join_without_windows(windows: Any) -> None:
    stream = StreamsBuilder().stream("in")
    with refused("how far apart records may be"):
        stream.join(stream, joined, windows)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TimeWindows.of_size(10, grace=-1),
        lambda: TimeWindows.of_size(10).grace("-1 s"),
        lambda: SessionWindows.of_gap(10, grace=-1),
        lambda: JoinWindows.of(before=1, after=1, grace=-1),
        lambda: StreamsBuilder().stream("a").join(StreamsBuilder().table("b"), joined, grace=-1),
    ],
)
def test_negative_grace(make: Callable[[], Any]) -> None:
    with refused("negative|different builders"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: TimeWindows.of_size(10, grace=LONGEST_MS),
        lambda: TimeWindows.of_size(LONGEST_MS).grace(1),
        lambda: SlidingWindows.of_difference(10, grace=LONGEST_MS - 19),
        lambda: SessionWindows.of_gap(10).grace(LONGEST_MS),
        lambda: JoinWindows.of(before=1, after=0, grace=LONGEST_MS),
    ],
)
def test_windows_and_grace_of_more_than_64_bits(make: Callable[[], Any]) -> None:
    with refused("do not fit into 64 bits"):
        make()


def test_negative_grace_of_a_table_join() -> None:
    builder = StreamsBuilder()
    table = builder.table("b", materialized=Materialized.versioned("rows", history=10))
    with refused("the grace of a join is -1"):
        builder.stream("a").join(table, joined, grace=-1)


def test_grace_needs_a_versioned_table() -> None:
    builder = StreamsBuilder()
    with refused("Materialized.versioned"):
        builder.stream("a").join(builder.table("b"), joined, grace=5)


def test_grace_longer_than_the_history() -> None:
    builder = StreamsBuilder()
    table = builder.table("b", materialized=Materialized.versioned("rows", history=4))
    with refused("a history of 4 ms"):
        builder.stream("a").join(table, joined, grace=5)


def test_global_table_without_a_key_mapper() -> None:
    builder = StreamsBuilder()
    table = builder.global_table("b")
    with refused("needs a key mapper"):
        builder.stream("a").join(table, joined)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "build",
    [
        lambda one, two: one.stream("a").join(two.stream("b"), joined, NEAR),
        lambda one, two: one.stream("a").left_join(two.table("b"), joined),
        lambda one, two: one.stream("a").join(two.global_table("b"), by_value, joined),
        lambda one, two: one.table("a").join(two.table("b"), joined),
        lambda one, two: one.stream("a").merge(two.stream("b")),
        lambda one, two: one.stream("a").group_by_key().cogroup(add).cogroup(two.stream("b").group_by_key(), add),
    ],
)
def test_different_builders(build: Callable[[StreamsBuilder, StreamsBuilder], Any]) -> None:
    with refused("different builders"):
        build(StreamsBuilder(), StreamsBuilder())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b: b.stream("a").join(5, joined), "cannot join 5"),
        (lambda b: b.stream("a").outer_join(b.table("b"), joined, NEAR), "outer_join takes a stream"),
        (lambda b: b.table("a").join(b.stream("b"), joined), "a table cannot join"),
        (lambda b: b.stream("a").merge(b.table("b")), "merge takes a stream"),
        (lambda b: b.stream("a").join(b.table("b"), joined, NEAR), "behind its joiner"),
        (
            lambda b: b.stream("a").join(b.table("b"), joined, key=1),
            "with a table: .* 'key'; it takes joiner, joined",
        ),
    ],
)
def test_joins_of_what_cannot_be_joined(build: Callable[[StreamsBuilder], Any], message: str) -> None:
    with refused(message):
        build(StreamsBuilder())


@pytest.mark.parametrize(
    "read_again",
    [
        lambda builder: builder.table("in"),
        lambda builder: builder.global_table("in"),
        lambda builder: builder.stream(["in", "other"]),
        lambda builder: builder.stream("in", timestamp=WallclockTimestampExtractor()),
    ],
)
def test_topic_read_in_two_ways(read_again: Callable[[StreamsBuilder], Any]) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    read_again(builder)
    with refused("topic 'in' is read by KSTREAM-SOURCE-0000000000 and again"):
        builder.build()


def test_store_that_does_not_exist() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(Forwarding, "seen")
    with refused("uses the store 'seen'"):
        builder.build()


def test_cogroup_of_two_unnamed_repartitions() -> None:
    builder = StreamsBuilder()
    one, two = builder.stream("a").group_by(by_value), builder.stream("b").group_by(by_value)
    with refused("name the groups"):
        one.cogroup(add).cogroup(two, add).aggregate(bytes)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda g: g.windowed_by(SessionWindows.of_gap(5)).aggregate(list, add), "has no merger"),
        (lambda g: g.windowed_by(TimeWindows.of_size(5)).aggregate(list, add, add), "leave it out"),
        (lambda g: g.windowed_by(TimeWindows.of_size(5)).emit_strategy("late"), "emit strategy"),
        (lambda g: g.count(materialized=Materialized.as_("s", retention=5)), "holds no windows"),
        (lambda g: g.count(materialized=Materialized.versioned("s", history=5)), "cannot be versioned"),
        (
            lambda g: g.windowed_by(TimeWindows.of_size(5).grace(5)).count(
                materialized=Materialized.as_("s", retention=9)
            ),
            "keep windows for 9 ms, but they are open for 10 ms",
        ),
        (lambda g: g.count().suppress(Suppressed.until_window_closes()), "it has none"),
        (lambda g: g.count().suppress("5 minutes"), "Suppressed.until_time_limit"),
    ],
)
def test_aggregates(build: Callable[[Any], Any], message: str) -> None:
    with refused(message):
        build(StreamsBuilder().stream("in").group_by_key())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b: b.stream([]), "reads no topics"),
        (lambda b: b.stream(""), "give its name"),
        (lambda b: b.stream("a", timestamp=WallclockTimestampExtractor), "timestamp extractor of a"),
        (lambda b: b.stream("a", timestamp="event_time"), "timestamp extractor of a"),
        (lambda b: b.stream("a", on_deserialization_error="ignore"), "dead-letter"),
        (lambda b: b.stream("a", on_deserialization_error="dead-letter:"), "dead-letter"),
        (lambda b: b.stream("a").to("a b"), "cannot be a name"),
        (lambda b: b.stream("a").repartition(partitions=0), "at least 1"),
        (lambda b: b.stream("a").repartition(partitions=2.5), r"has 2.5 partitions"),
        (lambda b: b.table("a", materialized=Materialized.as_("s", retention=5)), "holds no windows"),
        (
            lambda b: b.global_table("a", materialized=Materialized.versioned("s", history=5)),
            "cannot be versioned",
        ),
        (lambda b: Materialized.versioned("s", history=0), "no history"),
        (lambda b: Suppressed.until_time_limit(5, max_records=-1), "max_records"),
    ],
)
def test_settings(build: Callable[[StreamsBuilder], Any], message: str) -> None:
    with refused(message):
        build(StreamsBuilder())


# -- what a runner checks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ss_join", "ss_outer", "st_join", "tt_join", "cogroup", "st_agg"])
def test_different_partition_counts(name: str) -> None:
    builder = StreamsBuilder()
    TOPOLOGIES[name](builder)
    topology = builder.build()
    plan(topology, "app", {"a": 3, "b": 3})
    with pytest.raises(TopologyError, match=r"different partition counts: a \(3\), b \(4\)"):
        plan(topology, "app", {"a": 3, "b": 4})


@pytest.mark.parametrize("name", ["ss_join_rekeyed", "st_left_rekeyed", "fk_join", "sg_join", "merge"])
def test_partition_counts_may_differ(name: str) -> None:
    builder = StreamsBuilder()
    TOPOLOGIES[name](builder)
    plan(builder.build(), "app", {"a": 3, "b": 4})


def test_repartition_of_a_given_width_must_agree() -> None:
    builder = StreamsBuilder()
    builder.stream("a").repartition(name="wide", partitions=8).join(builder.table("b"), joined).to("out")
    topology = builder.build()
    plan(topology, "app", {"a": 3, "b": 8})
    with pytest.raises(TopologyError, match=r"b \(4\), wide-repartition \(8\)"):
        plan(topology, "app", {"a": 4, "b": 4})


def test_functions_that_cannot_be_sent() -> None:
    pytest.importorskip("pyspark")
    lock = threading.Lock()
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda key, value: lock.locked(), name="locked").to("out")
    with pytest.raises(TopologyError, match="the predicate of locked cannot be sent to Spark's workers"):
        check_picklable(builder.build())


def test_functions_that_can_be_sent() -> None:
    pytest.importorskip("pyspark")
    for build in TOPOLOGIES.values():
        builder = StreamsBuilder()
        build(builder)
        check_picklable(builder.build())
