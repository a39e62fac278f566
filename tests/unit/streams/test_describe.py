"""The description of a topology, held against what Kafka Streams 4.3.1 printed for the same topologies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.kafka_streams_topologies import TOPOLOGIES, by_value, joined, yes

from suiro.errors import UsageError
from suiro.streams import Materialized, StreamsBuilder, TimeWindows
from suiro.streams.topology.describe import unstable_names

_PRINTED = dict(
    entry.split("\n", 1)
    for entry in (Path(__file__).parent / "kafka_streams_descriptions.txt").read_text().split("=== ")[1:]
)
_DIFFERENT_ON_PURPOSE = {
    "tt_join_filtered": "a filtered table that is joined keeps its rows; Kafka Streams filters at each look-up",
    "tt_chain": "a join that is joined keeps its rows; Kafka Streams joins at each look-up",
}


def described(name: str) -> str:
    builder = StreamsBuilder()
    TOPOLOGIES[name](builder)
    return builder.build().describe()


def sorted_stores(text: str) -> str:
    """Kafka Streams prints stores in the order of a hash table."""
    return re.sub(r"stores: \[([^]]*)]", lambda found: f"stores: [{', '.join(sorted(found[1].split(', ')))}]", text)


def test_every_entry_is_built() -> None:
    assert _PRINTED.keys() == TOPOLOGIES.keys()


@pytest.mark.parametrize("name", sorted(TOPOLOGIES.keys() - _DIFFERENT_ON_PURPOSE))
def test_as_kafka_streams_prints_it(name: str) -> None:
    assert described(name) == sorted_stores(_PRINTED[name])


@pytest.mark.parametrize("name", sorted(_DIFFERENT_ON_PURPOSE))
def test_only_stores_differ_on_purpose(name: str) -> None:
    def without(text: str) -> str:
        return re.sub(r"stores: \[[^]]*]", "", text)

    assert described(name) != sorted_stores(_PRINTED[name])
    assert without(described(name)) == without(_PRINTED[name])


def test_topic_chosen_by_a_function() -> None:
    def by_day(key: object, value: object, context: object) -> str:
        return "today"

    builder = StreamsBuilder()
    builder.stream("in").to(by_day)
    assert "Sink: KSTREAM-SINK-0000000001 (extractor class: " in builder.build().describe()
    assert "by_day" in builder.build().describe()


def test_mermaid() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by(by_value, name="group").count(
        name="count", materialized=Materialized.as_("counts")
    ).to_stream(name="stream").to("out", name="sink")
    assert builder.build().describe("mermaid") == (
        "flowchart TD\n"
        '  topic0[/"in"/]\n'
        '  subgraph sub0 ["Sub-topology 0"]\n'
        '    node1["group"]\n'
        "  end\n"
        '  subgraph sub1 ["Sub-topology 1"]\n'
        '    node2["count"]\n'
        '    node3["stream"]\n'
        '    store4[("counts")]\n'
        "  end\n"
        '  topic5[/"group-repartition"/]\n'
        '  topic6[/"out"/]\n'
        "  node2 -.- store4\n"
        "  topic0 --> node1\n"
        "  node1 --> topic5\n"
        "  topic5 --> node2\n"
        "  node2 --> node3\n"
        "  node3 --> topic6\n"
    )


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_every_arrow_of_a_picture_has_two_ends(name: str) -> None:
    builder = StreamsBuilder()
    TOPOLOGIES[name](builder)
    text = builder.build().describe("mermaid")
    shown = set(re.findall(r"^ +(\w+)\[", text, re.MULTILINE))
    used = {end for pair in re.findall(r"^  (\w+) (?:-->|-\.-) (\w+)$", text, re.MULTILINE) for end in pair}
    assert used == shown


def test_names_that_come_from_a_place() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by(by_value).windowed_by(TimeWindows.of_size("1 day")).count()
    builder.stream("other").group_by(by_value, name="named").count(materialized=Materialized.as_("counts"))
    topology = builder.build()
    store = "KSTREAM-AGGREGATE-STATE-STORE-0000000002"
    assert unstable_names(topology) == [
        (f"{store}-repartition", f"{store}-repartition"),
        ("KSTREAM-AGGREGATE-0000000003", store),
    ]
    assert f"{store} of KSTREAM-AGGREGATE-0000000003: derived from its place" in topology.describe("names")


def test_names_of_a_topology_that_has_them_all() -> None:
    builder = StreamsBuilder()
    carriers = builder.global_table("carriers")
    builder.stream("in").filter(yes).join(carriers, by_value, joined).to("out")
    assert builder.build().describe("names") == "every operator that keeps state has a name of its own\n"


def test_unknown_style() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with pytest.raises(UsageError, match="mermaid"):
        builder.build().describe("dot")
