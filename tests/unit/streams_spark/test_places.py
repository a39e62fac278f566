"""Where records go that a user's function chooses the topic or the partition of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from suiro.streams import StreamsBuilder, serdes
from suiro.streams.errors import ProcessingError
from suiro.streams.interpreter import Interpreter
from suiro.streams.operators.context import TaskSettings
from suiro.streams.topology.topology import Topology
from tests.unit.streams_spark.test_column_task import Engine


def repartitioned(chosen: Any) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.long)
    spread = stream.repartition(
        name="spread", partitions=3, partitioner=lambda topic, key, value, count: chosen if value else None
    )
    spread.group_by_key().count().to_stream().to("out")
    return builder.build()


def written(chosen: Any) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.long)
    stream.to("out", partitioner=lambda topic, key, value, count: chosen if value else None)
    return builder.build()


def ran(topology: Topology, policy: str) -> tuple[list[Any], dict[str, int]]:
    engine = Engine(topology, f"places {id(topology)} {policy}")
    engine.program = replace(engine.program, run=f"{id(topology)}", settings=TaskSettings(on_processing_error=policy))
    rows = engine.batch({("stream", 0): ([("a", 1, 5), ("b", 0, 6)], False)}, 10)
    return [row for row in rows if row[0] == "out"], dict(engine.dropped)


@pytest.mark.parametrize("chosen", [3, -1, 1.5, "1", True, 1 << 40])
@pytest.mark.parametrize("build", [repartitioned, written])
def test_a_partition_that_is_not_there_is_an_error_of_the_record(build: Callable[[Any], Topology], chosen: Any) -> None:
    with pytest.raises(ProcessingError, match=r"of stream-0 offset 0, key 'a'.*the partitioner gave"):
        ran(build(chosen), "fail")
    out, dropped = ran(build(chosen), "skip")
    assert [row[1] for row in out] == [b"b"]
    assert dropped == {"processing error": 1}


@pytest.mark.parametrize("build", [repartitioned, written])
def test_a_partition_that_is_there_is_taken(build: Callable[[Any], Topology]) -> None:
    out, _ = ran(build(1), "fail")
    assert sorted(row[1] for row in out) == [b"a", b"b"]
    if build is written:
        assert [row[4] for row in out] == [1, None]


@pytest.mark.parametrize("given", [None, "", 5, "no topic!", "..", 250 * "a"])
@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_topic_that_is_no_name_is_an_error_of_the_record(given: Any, policy: str) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.long)
    stream.to(lambda key, value, origin: given if value else "out")
    topology = builder.build()
    run = Interpreter(topology, settings=TaskSettings(on_processing_error=policy))
    if policy == "fail":
        with pytest.raises(ProcessingError, match=r"key 'a'.*chooses the topic gave"):
            ran(topology, policy)
        with pytest.raises(ProcessingError, match=r"key 'a'.*chooses the topic gave"):
            run.pipe("stream", 5, b"a", bytes(7) + b"\1")
        return
    assert ran(topology, policy) == ([("out", b"b", bytes(8), 6000, None)], {"processing error": 1})
    run.pipe("stream", 5, b"a", bytes(7) + b"\1")
    run.pipe("stream", 6, b"b", bytes(8))
    assert [(item.topic, item.key) for item in run.outputs] == [("out", b"b")]


def test_a_function_that_chooses_the_topic_is_given_headers_and_timestamp() -> None:
    class Marking:
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Any) -> None:
            self.context.forward(record.with_headers((("kind", b"odd" if record.value % 2 else b"even"),)))

    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.long).process_values(Marking)
    stream.to(lambda key, value, record: f"{dict(record.headers)['kind'].decode()}-{record.timestamp}")
    topology = builder.build()
    engine = Engine(topology, "marking")
    rows = engine.batch({("stream", 0): ([("a", 1, 5), ("b", 0, 6)], False)}, 10)
    assert sorted(row[:2] for row in rows) == [("even-6", b"b"), ("odd-5", b"a")]
    run = Interpreter(topology)
    run.pipe("stream", 7, b"a", bytes(7) + b"\1", (("kind", b"of the source"),))
    assert [item.topic for item in run.outputs] == ["odd-7"]
