"""What OpenLineage hears of a topology: its topics, their columns, and where columns come from."""

from __future__ import annotations

import json

from suiro.registry import Schema, registry_client
from suiro.streams import StreamsBuilder, Topology, col, left, record_value, right, serdes, struct
from suiro.streams.dsl.checks import inputs_that_meet
from suiro.streams.dsl.kstream import KStream
from suiro.streams.dsl.registries import registry_for_run, with_registry
from suiro.streams.operators.context import TaskSettings
from suiro.streams.topology.nodes import Source
from suiro.streams.vectorised.plan import ColumnarStateless, columnar_form_of
from suiro.streams_spark.reported_datasets import TopologyDatasets
from suiro.telemetry import Column, ColumnOrigin, Dataset

REGISTRY = "mock://lineage-report"
SCHEMA = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "int"]}],
}


def datasets(builder: StreamsBuilder, **settings: tuple[str, ...]) -> dict[str, Dataset]:
    topology: Topology = with_registry(builder.build(), REGISTRY)
    found = TopologyDatasets(topology, "h:9092", **settings).now()
    return {one.name: one for one in (*found.inputs, *found.outputs)}


def origin(topic: str, column: str, *, is_identity: bool = False) -> ColumnOrigin:
    return ColumnOrigin(namespace="kafka://h:9092", name=topic, column=column, is_identity=is_identity)


def names(dataset: Dataset) -> list[tuple[str, str | None]]:
    return [(one.name, one.type) for one in dataset.columns]


def test_topics_in_and_out() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(["a", "b"], value=serdes.json)
    stream.group_by_key().count().to_stream().to("counts")
    stream.to(lambda key, value, origin: "any")
    builder.table("unread")
    topology = builder.build()
    found = TopologyDatasets(topology, "h:9092,other:9092", dead_letter_topics=("dead",)).now()
    assert [one.name for one in found.inputs] == ["a", "b", "unread"]
    assert [one.name for one in found.outputs] == ["counts", "dead"]
    assert {one.namespace for one in (*found.inputs, *found.outputs)} == {"kafka://h:9092"}
    assert all(not one.columns and not one.origins for one in found.outputs)


def test_columns_of_the_registry_and_of_the_serde() -> None:
    registry_client(REGISTRY).register("flights-value", Schema(json.dumps(SCHEMA)))
    builder = StreamsBuilder()
    written = serdes.json_schema.with_(schema={"properties": {"carrier": {"type": "string"}}})
    flights = builder.stream("flights", value=serdes.avro)
    flights.filter(col("delay") > 0).to("late", value=serdes.avro)
    flights.map_values(lambda value: value).to("known", value=written)
    builder.stream("other", value=serdes.avro).to("elsewhere", value=serdes.avro)
    found = datasets(builder)
    assert names(found["flights"]) == [("carrier", "string"), ("delay", "int")]
    assert found["late"].columns == found["flights"].columns
    assert found["late"].origins["delay"] == (origin("flights", "delay", is_identity=True),)
    assert names(found["known"]) == [("carrier", "string")]
    assert found["known"].origins == {}
    assert names(found["other"]) == names(found["elsewhere"]) == []


def test_columns_of_expressions_and_their_origins() -> None:
    builder = StreamsBuilder()
    flights = builder.stream("flights", value=serdes.json)
    first = flights.map_values(struct(who=col("carrier"), hours=col("delay") / 60, one=1))
    first.filter(col("hours") > 1).map_values(struct(who=col("who"), both=col("who") + col("hours"))).to("out")
    found = datasets(builder)
    assert names(found["out"]) == [("who", None), ("both", None)]
    assert found["out"].origins == {
        "who": (origin("flights", "carrier", is_identity=True),),
        "both": (origin("flights", "delay"), origin("flights", "carrier")),
    }


def test_columns_of_a_join() -> None:
    builder = StreamsBuilder()
    carriers = builder.table("carriers", value=serdes.json)
    flights = builder.stream("flights", value=serdes.json)
    flights.join(carriers, struct(flight=left("number"), name=right("name"), all=right())).to("joined")
    found = datasets(builder)["joined"]
    assert found.origins == {
        "flight": (origin("flights", "number", is_identity=True),),
        "name": (origin("carriers", "name", is_identity=True),),
    }


def test_streams_that_meet() -> None:
    builder = StreamsBuilder()
    first, second = builder.stream("first", value=serdes.json), builder.stream("second", value=serdes.json)
    first.merge(second).map_values(struct(x=col("x"))).to("both")
    first.map_values(struct(y=col("y"))).merge(second).to("unlike")
    first.map_values(record_value()).to("same", value=serdes.avro.with_(schema=json.dumps(SCHEMA)))
    found = datasets(builder)
    assert found["both"].origins["x"] == (
        origin("first", "x", is_identity=True),
        origin("second", "x", is_identity=True),
    )
    assert found["unlike"].origins == {}
    assert set(found["same"].origins) == {"carrier", "delay"}


def test_a_registry_that_is_away_gives_no_columns() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=serdes.avro).to("out", value=serdes.avro)
    topology = registry_for_run(builder.build(), "http://127.0.0.1:9")
    found = TopologyDatasets(topology, "h:1").now()
    assert [one.columns for one in (*found.inputs, *found.outputs)] == [(), ()]


def test_the_table_of_a_view_has_the_columns_of_the_output() -> None:
    builder = StreamsBuilder()
    flights = builder.table("flights", value=serdes.json)
    flights.map_values(struct(who=col("carrier"))).to_stream().to("view.v1")
    table = Dataset(namespace="suiro-views", name="view", columns=(Column(name="id"),))
    found = TopologyDatasets(builder.build(), "h:9092", table=table).now()
    assert [one.name for one in found.outputs] == ["view", "view.v1"]
    assert names(found.outputs[0]) == [("id", None), ("who", None)]
    assert found.outputs[0].origins == found.outputs[1].origins


def test_a_stream_that_is_parted_and_merged_often_is_looked_at_once() -> None:
    """Each time doubles the ways from the topic to the sink."""

    def rules(builder: StreamsBuilder) -> KStream:
        stream = builder.stream("in")
        for limit in range(50):
            stream = stream.filter(col("delay") > limit).merge(stream.filter(col("delay") <= limit))
        return stream

    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    rules(builder).to("out")
    topology = builder.build()
    (sub,) = topology.sub_topologies
    assert isinstance(columnar_form_of(topology, sub, TaskSettings()), ColumnarStateless)
    (found,) = TopologyDatasets(topology, "h:1").now().outputs
    assert found.name == "out"
    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    rules(builder).join(builder.table("rows"), left()).to("out")
    ((_, inputs),) = inputs_that_meet(builder.build())
    assert [item.topics for item in inputs if isinstance(item, Source)] == [("in",), ("rows",)]


def test_a_stream_may_have_many_operators() -> None:
    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    stream = builder.stream("in")
    for limit in range(500):
        stream = stream.filter(col("delay") > limit)
    stream.map_values(struct(late=col("delay"))).to("out")
    (found,) = TopologyDatasets(builder.build(), "h:1").now().outputs
    assert names(found) == [("late", None)]
