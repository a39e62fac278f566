"""What the DSL builds: nodes, serdes, stores, repartitions; and that all of it runs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from support.kafka_streams_topologies import TOPOLOGIES, Forwarding, add, by_value, joined, same, value_twice, yes

import suiro.streams
from suiro.streams import (
    Consumed,
    EmitStrategy,
    Grouped,
    JoinWindows,
    Materialized,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyError,
    col,
    serdes,
)
from suiro.streams.topology.nodes import (
    Repartition,
    Sink,
    Source,
    StreamTableJoin,
    Suppress,
    TableFilter,
    TableSource,
    TableTableJoin,
)
from suiro.streams.topology.topology import stores_of
from suiro.testing import TopologyTestDriver

NEAR = JoinWindows.of_time_difference(10)


def operators(topology: Topology, kind: type) -> list[Any]:
    return [node.operator for node in topology.nodes if isinstance(node.operator, kind)]


def only(topology: Topology, kind: type) -> Any:
    (found,) = operators(topology, kind)
    return found


# -- as a whole ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_every_kind_of_topology_runs(name: str) -> None:
    builder = StreamsBuilder()
    TOPOLOGIES[name](builder)
    topology = builder.build()
    with TopologyTestDriver(topology) as driver:
        inputs = [driver.create_input_topic(topic) for topic in topology.source_topics]
        for timestamp in (0, 3, 50, 51, 100):
            for topic in inputs:
                topic.pipe_input(b"k", b"v", timestamp)
                topic.pipe_input(b"v", b"v", timestamp)
                topic.pipe_input(b"k", None, timestamp)
        given = [driver.create_output_topic(topic).read_records_to_list() for topic in topology.sink_topics]
    assert any(given) or not topology.sink_topics


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_parents_and_stores_are_there(name: str) -> None:
    builder = StreamsBuilder()
    TOPOLOGIES[name](builder)
    topology = builder.build()
    seen: set[str] = set()
    used: set[str] = set()
    for node in topology.nodes:
        assert seen.issuperset(node.parents)
        seen.add(node.name)
        used.update(stores_of(node))
    assert used == {spec.name for spec in topology.stores}


def test_a_topic_that_is_named_twice_is_read_once() -> None:
    builder = StreamsBuilder()
    builder.stream(["in", "other", "in"], key=serdes.string, value=serdes.long).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", 1)
        assert len(driver.create_output_topic("out").read_records_to_list()) == 1
    with pytest.raises(TopologyError, match="a topic is 5; give its name"):
        builder.stream(["in", 5])  # type: ignore[list-item]


def test_names_are_all_there() -> None:
    assert [name for name in suiro.streams.__all__ if getattr(suiro.streams, name, None) is None] == []
    assert set(suiro.streams.__all__) <= set(dir(suiro.streams))
    with pytest.raises(AttributeError, match="no attribute 'Stream'"):
        _ = suiro.streams.Stream


def test_building_takes_neither_spark_nor_arrow() -> None:
    program = (
        "import sys; from suiro.streams import StreamsBuilder, TimeWindows, col\n"
        "b = StreamsBuilder(); s = b.stream('in')\n"
        "s.group_by(col('a')).windowed_by(TimeWindows.of_size(5)).count().to_stream().to('out')\n"
        "b.build().describe()\n"
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_topology_can_be_built_twice() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.to("one")
    first = builder.build()
    stream.to("two")
    assert first.sink_topics == ("one",)
    assert builder.build().sink_topics == ("one", "two")


def test_words_are_counted() -> None:
    builder = StreamsBuilder()
    lines = builder.stream("lines", value=serdes.string)
    words = lines.flat_map_values(lambda line: line.split(), value=serdes.string)
    words.group_by(lambda key, word: word, key=serdes.string).count().to_stream().to("counts")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("lines").pipe_input(b"1", "a b a", 3)
        counts = driver.create_output_topic("counts", key=serdes.string, value=serdes.long)
        assert [(found.key, found.value) for found in counts.read_records_to_list()] == [
            ("a", 1),
            ("b", 1),
            ("a", 2),
        ]


def test_branches_are_named() -> None:
    builder = StreamsBuilder(value=serdes.json)
    ways = builder.stream("in").split().branch(col("late") > 15, "late").branch(yes).default_branch("never")
    assert list(ways) == ["late", "2", "never"]
    for name, stream in ways.items():
        stream.to(name)
    with TopologyTestDriver(builder.build()) as driver:
        for late in (20, 3):
            driver.create_input_topic("in").pipe_input(b"k", {"late": late}, 0)
        given = {name: driver.create_output_topic(name).read_records_to_list() for name in ways}
    assert {name: [found.value for found in records] for name, records in given.items()} == {
        "late": [{"late": 20}],
        "2": [{"late": 3}],
        "never": [],
    }


# -- serdes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("go_on", "key", "value"),
    [
        (lambda s: s, serdes.string, serdes.json),
        (lambda s: s.filter(yes).peek(yes), serdes.string, serdes.json),
        (lambda s: s.map_values(same), serdes.string, None),
        (lambda s: s.map_values(same, value=serdes.long), serdes.string, serdes.long),
        (lambda s: s.map(value_twice), None, None),
        (lambda s: s.select_key(by_value), None, serdes.json),
        (lambda s: s.select_key(by_value, key=serdes.int), serdes.int, serdes.json),
        (lambda s: s.flat_map_values(same), serdes.string, None),
        (lambda s: s.flat_map(value_twice, key=serdes.int), serdes.int, None),
        (lambda s: s.process(Forwarding), None, None),
        (lambda s: s.process_values(Forwarding), serdes.string, None),
        (lambda s: s.repartition(), serdes.string, serdes.json),
        (lambda s: s.merge(s), serdes.string, serdes.json),
        (lambda s: s.merge(s.map_values(same)), serdes.string, None),
        (lambda s: s.split().default_branch()["0"], serdes.string, serdes.json),
        (lambda s: s.to_table().filter(yes).to_stream(), serdes.string, serdes.json),
        (lambda s: s.to_table().map_values(same).to_stream(), serdes.string, None),
        (lambda s: s.to_table().to_stream(by_value), None, serdes.json),
        (lambda s: s.group_by_key().count().to_stream(), serdes.string, serdes.long),
        (lambda s: s.group_by_key().reduce(joined).to_stream(), serdes.string, serdes.json),
        (lambda s: s.group_by_key().aggregate(list, add).to_stream(), serdes.string, None),
        (
            lambda s: (
                s.group_by_key().aggregate(list, add, materialized=Materialized.with_(value=serdes.int)).to_stream()
            ),
            serdes.string,
            serdes.int,
        ),
        (lambda s: s.group_by(by_value).count().to_stream(), None, serdes.long),
        (lambda s: s.group_by(by_value, key=serdes.int).count().to_stream(), serdes.int, serdes.long),
        (
            lambda s: s.group_by(by_value, Grouped.with_(serdes.int)).count().to_stream(),
            serdes.int,
            serdes.long,
        ),
        (
            lambda s: s.group_by_key().windowed_by(TimeWindows.of_size(7)).count().to_stream(),
            serdes.time_windowed(serdes.string, 7),
            serdes.long,
        ),
        (
            lambda s: s.group_by_key().windowed_by(SlidingWindows.of_difference(7)).count().to_stream(),
            serdes.time_windowed(serdes.string, 7),
            serdes.long,
        ),
        (
            lambda s: s.group_by_key().windowed_by(SessionWindows.of_gap(7)).count().to_stream(),
            serdes.session_windowed(serdes.string),
            serdes.long,
        ),
        (
            lambda s: s.group_by(by_value).windowed_by(TimeWindows.of_size(7)).count().to_stream(),
            serdes.time_windowed(serdes.natural, 7),
            serdes.long,
        ),
        (
            lambda s: s.group_by(by_value).windowed_by(SessionWindows.of_gap(7)).count().to_stream(),
            serdes.session_windowed(serdes.natural),
            serdes.long,
        ),
        (lambda s: s.join(s, joined, NEAR), serdes.string, None),
        (lambda s: s.select_key(by_value).join(s, joined, NEAR), serdes.string, None),
        (lambda s: s.to_table().join(s.to_table(), joined).to_stream(), serdes.string, None),
        (
            lambda s: s.to_table().join(s.to_table(), joined, value=serdes.int).to_stream(),
            serdes.string,
            serdes.int,
        ),
        (
            lambda s: s.to_table().group_by(value_twice, key=serdes.int).count().to_stream(),
            serdes.int,
            serdes.long,
        ),
    ],
)
def test_serdes_flow_as_far_as_they_are_known(go_on: Any, key: Any, value: Any) -> None:
    builder = StreamsBuilder()
    go_on(builder.stream("in", key=serdes.string, value=serdes.json)).to("out")
    sink = only(builder.build(), Sink)
    assert (sink.key, sink.value) == (key, value)


def test_serdes_of_sources() -> None:
    builder = StreamsBuilder(key=serdes.string)
    builder.stream("a", Consumed.with_(serdes.int, serdes.long))
    builder.stream("b", Consumed.with_(serdes.int, serdes.long), value=serdes.json)
    builder.table("c", materialized=Materialized.as_("rows", value=serdes.double))
    found = [(source.key, source.value) for source in operators(builder.build(), Source)]
    assert found == [
        (serdes.int, serdes.long),
        (serdes.int, serdes.json),
        (serdes.string, serdes.double),
    ]


def test_serdes_of_sinks() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out", Produced.with_(serdes.int, serdes.long), value=serdes.json)
    sink = only(builder.build(), Sink)
    assert (sink.key, sink.value) == (serdes.int, serdes.json)


def test_unknown_serdes_are_tagged_inside() -> None:
    builder = StreamsBuilder()
    builder.stream("in").map(value_twice).group_by_key().aggregate(list, add)
    topology = builder.build()
    cut = only(topology, Repartition)
    (store,) = topology.stores
    assert (cut.key, cut.value, store.key, store.value) == (serdes.tagged,) * 4


def test_sides_that_meet_are_cut_by_the_same_bytes() -> None:
    """Counts by keys of an unknown serde, joined from a topic of strings, are where the strings are."""
    builder = StreamsBuilder()
    counts = builder.stream("in", value=serdes.json).group_by(col("carrier")).count()
    builder.stream("names", key=serdes.string).join(counts, joined).to("out")
    assert only(builder.build(), Repartition).key == serdes.string


def test_which_key_serde_is_right_is_passed_on() -> None:
    builder = StreamsBuilder()
    unknown = builder.stream("a").select_key(by_value)
    unknown.join(builder.stream("b").select_key(by_value), joined, NEAR, name="first").join(
        builder.table("c", key=serdes.string), joined
    ).to("out")
    assert [cut.key for cut in operators(builder.build(), Repartition)] == [serdes.string] * 2


# -- repartitions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "cuts"),
    [
        (lambda s: s, 0),
        (lambda s: s.map_values(same).filter(yes).flat_map_values(same).peek(yes).process_values(Forwarding), 0),
        (lambda s: s.map(value_twice), 1),
        (lambda s: s.flat_map(value_twice), 1),
        (lambda s: s.select_key(by_value), 1),
        (lambda s: s.process(Forwarding), 1),
        (lambda s: s.select_key(by_value).map_values(same).filter(yes), 1),
        (lambda s: s.select_key(by_value).split().default_branch()["0"], 1),
        (lambda s: s.merge(s.select_key(by_value)), 1),
        (lambda s: s.to_table().to_stream(by_value), 1),
        (lambda s: s.select_key(by_value).repartition(), 1),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        lambda b, s: s.group_by_key().count(),
        lambda b, s: s.to_table(),
        lambda b, s: s.join(b.table("t"), joined),
        lambda b, s: s.join(b.stream("t"), joined, NEAR),
        lambda b, s: b.stream("t").join(s, joined, NEAR),
    ],
)
def test_changed_keys_are_brought_together(change: Any, cuts: int, use: Any) -> None:
    builder = StreamsBuilder()
    use(builder, change(builder.stream("in")))
    assert len(operators(builder.build(), Repartition)) == cuts


def test_joins_of_one_stream_share_a_repartition_by_the_serdes_that_are_known() -> None:
    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    stream = builder.stream("in").select_key(by_value)
    latest = builder.stream("other").select_key(by_value).to_table()
    stream.join(latest, joined).to("one")
    stream.join(builder.table("table"), joined).to("two")
    cuts = operators(builder.build(), Repartition)
    (cut,) = (each for each in cuts if each.topic.startswith("KSTREAM-KEY-SELECT"))
    assert (cut.key, cut.value) == (serdes.string, serdes.json)
    with pytest.raises(TopologyError, match="two operators have the name"):
        stream.join(builder.table("long", key=serdes.long), joined)


def test_a_join_does_not_share_a_repartition_that_was_asked_for() -> None:
    """Its partitioner sends the records elsewhere than the table's."""
    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    stream = builder.stream("in").select_key(by_value, name="changed")
    stream.repartition(name="changed", partitioner=lambda topic, key, value, partitions: 0)
    with pytest.raises(TopologyError, match="two operators have the name 'changed-repartition'"):
        stream.join(builder.table("table"), joined)


def test_a_repartition_by_hand() -> None:
    builder = StreamsBuilder()
    builder.stream("in").repartition(name="wide", partitions=8, key=serdes.string).group_by_key().count()
    cut = only(builder.build(), Repartition)
    assert (cut.topic, cut.partitions, cut.key, cut.asked_for) == ("wide-repartition", 8, serdes.string, True)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("ss_join_rekeyed", [False, False]),
        ("ss_left_named", [True, True]),
        ("st_left_rekeyed", [True]),
        ("st_join_rekeyed_named", [False]),
        ("count_unnamed", [False]),
        ("fk_join", [False, False]),
        ("fk_left_named", [True, False]),
    ],
)
def test_null_keys_are_kept_for_joins_that_keep_them(name: str, kept: list[bool]) -> None:
    builder = StreamsBuilder()
    TOPOLOGIES[name](builder)
    assert [cut.keeps_null_keys for cut in operators(builder.build(), Repartition)] == kept


def test_null_keys_are_kept_over_what_lies_between() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(by_value).repartition(name="far").filter(yes).map_values(same)
    stream.left_join(builder.table("t"), joined).to("out")
    stream.group_by_key().count()
    assert only(builder.build(), Repartition).keeps_null_keys


# -- stores -------------------------------------------------------------------------------------------------------


def test_tables_keep_rows_only_when_they_must() -> None:
    builder = StreamsBuilder()
    for topic in ("passed", "joined", "grouped", "suppressed"):
        builder.table(topic, name=topic)
    tables = {topic: builder.table(topic + "-again", name=topic + "-again") for topic in ("joined", "grouped", "held")}
    builder.stream("s").join(tables["joined"], joined).to("out")
    tables["grouped"].group_by(value_twice).count()
    tables["held"].suppress(Suppressed.until_time_limit(5))
    stored = {
        node.name: node.operator.store is not None
        for node in builder.build().nodes
        if isinstance(node.operator, TableSource)
    }
    assert {name for name, has_store in stored.items() if has_store} == {
        "joined-again",
        "grouped-again",
        "held-again",
    }


def test_named_and_versioned_tables() -> None:
    builder = StreamsBuilder()
    builder.table("a", materialized=Materialized.as_("rows"))
    builder.table("b", materialized=Materialized.versioned("versions", history="1 day"))
    topology = builder.build()
    rows, versions = topology.store("rows"), topology.store("versions")
    assert (rows.kind, rows.named_by_user, rows.logged) == ("key-value", True, True)
    assert (versions.kind, versions.retention_ms) == ("versioned", 86_400_000)
    assert [source.versioned for source in operators(topology, TableSource)] == [False, True]


def test_mapped_rows_that_are_joined_are_kept_without_a_changelog() -> None:
    builder = StreamsBuilder()
    table = builder.table("a").filter(yes).map_values(same)
    builder.stream("s").join(table, joined).to("out")
    topology = builder.build()
    store = topology.store(only(topology, StreamTableJoin).table_store)
    assert (store.name, store.logged) == ("KTABLE-MAPVALUES-0000000004-store", False)
    # The stream's records find a row; nothing needs to know what was there before.
    assert only(topology, TableSource).store is None


def test_a_filtered_versioned_table_is_versioned() -> None:
    builder = StreamsBuilder()
    table = builder.table("a", materialized=Materialized.versioned("v", history=50)).filter(yes)
    builder.stream("s").join(table, joined, grace=20, name="j").to("out")
    topology = builder.build()
    join = only(topology, StreamTableJoin)
    assert (join.versioned, join.grace_ms, join.buffer_store) == (True, 20, "j-Buffer")
    assert topology.store(join.table_store).retention_ms == 50


def test_joined_tables_know_what_their_rows_were() -> None:
    builder = StreamsBuilder()
    left = builder.table("a").filter(yes)
    right = builder.table("b", materialized=Materialized.versioned("v", history=50))
    left.outer_join(right, joined, materialized=Materialized.as_("both"))
    topology = builder.build()
    join = only(topology, TableTableJoin)
    assert (join.right_store, join.store, join.left_versioned, join.right_versioned) == (
        "v",
        "both",
        False,
        True,
    )
    assert only(topology, TableFilter).sends_old
    assert all(source.store is not None for source in operators(topology, TableSource))


@pytest.mark.parametrize(
    ("above", "knows"),
    [
        (lambda b: b.table("t"), False),
        (lambda b: b.table("t").filter(yes, materialized=Materialized.as_("f")), True),
        (lambda b: b.table("t").map_values(same), False),
        (lambda b: b.table("t", materialized=Materialized.versioned("v", history=5)), False),
        (lambda b: b.table("t", materialized=Materialized.as_("rows")), True),
        (lambda b: b.table("t", materialized=Materialized.as_("rows")).map_values(same), True),
        (lambda b: b.stream("t").group_by_key().count(), True),
        (lambda b: b.table("t").join(b.table("u"), joined), True),
        (lambda b: b.table("t").suppress(Suppressed.until_time_limit(5)), True),
        (lambda b: b.table("t").group_by(value_twice).count(), True),
    ],
)
def test_which_filters_know_that_a_row_was_not_there(above: Any, knows: bool) -> None:
    builder = StreamsBuilder()
    above(builder).filter(yes, name="last").to_stream().to("out")
    operator = builder.build().node("last").operator
    assert isinstance(operator, TableFilter)
    assert (operator.sends_old and not operator.of_versions) is knows


def test_windowed_stores() -> None:
    builder = StreamsBuilder()
    group = builder.stream("in", key=serdes.string).group_by_key()
    group.windowed_by(TimeWindows.of_size(10).grace(5)).count(materialized=Materialized.as_("t"))
    group.windowed_by(SlidingWindows.of_difference(10, grace=5)).count(materialized=Materialized.as_("d"))
    group.windowed_by(SessionWindows.of_gap(10).grace(5)).count(materialized=Materialized.as_("s", retention=100))
    topology = builder.build()
    found = [
        (spec.kind, spec.retention_ms, spec.window_size_ms, spec.key)
        for spec in (topology.store("t"), topology.store("d"), topology.store("s"))
    ]
    assert found == [
        ("window", 15, 10, serdes.string),
        ("window", 25, 10, serdes.string),
        ("session", 100, None, serdes.string),
    ]


@pytest.mark.parametrize(
    ("windows", "closing", "inclusive"),
    [
        (TimeWindows.of_size(10).grace(5), 5, False),
        (SlidingWindows.of_difference(10, grace=5), 5, True),
        (SessionWindows.of_gap(10).grace(5), 15, True),
    ],
)
def test_suppress_waits_for_the_windows_above(windows: Any, closing: int, inclusive: bool) -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().windowed_by(windows).count()
    counts.filter(yes).map_values(same).suppress(Suppressed.until_window_closes(max_records=9))
    suppress = only(builder.build(), Suppress)
    assert (suppress.closing_delay_ms, suppress.inclusive_end) == (closing, inclusive)
    assert (suppress.max_records, suppress.emits_early_when_full) == (9, False)


def test_suppress_waits_for_the_longest_of_joined_windows() -> None:
    builder = StreamsBuilder()
    one, two = (
        builder.stream(topic).group_by_key().windowed_by(TimeWindows.of_size(10).grace(grace)).count()
        for topic, grace in (("a", 3), ("b", 8))
    )
    one.join(two, joined).suppress(Suppressed.until_window_closes())
    assert only(builder.build(), Suppress).closing_delay_ms == 8


def test_a_suppressed_table_can_be_joined() -> None:
    builder = StreamsBuilder(key=serdes.string, value=serdes.string)
    held = builder.table("t").suppress(Suppressed.until_time_limit(5))
    builder.stream("s").left_join(held, lambda left, right: f"{left} {right}").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        table, stream = driver.create_input_topic("t"), driver.create_input_topic("s")
        table.pipe_input("k", "row", 0)
        stream.pipe_input("k", "early", 1)
        table.pipe_input("other", "row", 10)
        stream.pipe_input("k", "late", 11)
        given = driver.create_output_topic("out").read_records_to_list()
    assert [found.value for found in given] == ["early None", "late row"]


def test_emit_strategy_is_kept() -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(SessionWindows.of_gap(10))
    windowed.emit_strategy(EmitStrategy.on_window_close()).count(name="final")
    windowed.count(name="each")
    topology = builder.build()
    found = [getattr(topology.node(name).operator, "emit", None) for name in ("final", "each")]
    assert found == [EmitStrategy.ON_WINDOW_CLOSE, EmitStrategy.ON_WINDOW_UPDATE]


# -- sources ------------------------------------------------------------------------------------------------------


def test_a_topic_is_read_once() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("one")
    builder.stream("in").to("two")
    topology = builder.build()
    assert len(operators(topology, Source)) == 1
    assert len(topology.sub_topologies) == 1


def test_settings_of_a_source() -> None:
    builder = StreamsBuilder()
    builder.stream("in", on_deserialization_error="dead-letter:bad").to("out")
    assert only(builder.build(), Source).on_deserialization_error == "dead-letter:bad"
