"""What a task over blocks does with functions that fail, and which operators go record by record."""

from __future__ import annotations

from typing import Any

import pytest
from support.block_runs import Fed, run_both

from suiro.streams import StreamsBuilder, serdes
from suiro.streams.blocks import BlockPlan, block_plan
from suiro.streams.errors import ProcessingError
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Record
from suiro.streams.topology.topology import Topology
from suiro.testing import TopologyTestDriver


def _in(builder: StreamsBuilder) -> Any:
    return builder.stream("in", key=serdes.string, value=serdes.json)


def _fed(topology: Topology, values: list[Any]) -> list[list[list[Fed]]]:
    name = topology.sub_topologies[0].inputs[0].name
    return [[[Fed(name, Record("k", value, place)) for place, value in enumerate(values)]]]


def _plan(builder: StreamsBuilder) -> BlockPlan:
    topology = builder.build()
    return block_plan(topology, topology.sub_topologies[0])


def _failing(calls: list[Any]) -> StreamsBuilder:
    def careful(value: Any) -> Any:
        calls.append(value)
        if value == "bad":
            raise ValueError("it is bad")
        return value

    builder = StreamsBuilder()
    _in(builder).map_values(careful, name="careful").to("out", value=serdes.json)
    return builder


@pytest.mark.parametrize(("policy", "letters"), [("skip", 0), ("dead-letter:letters", 1)])
def test_in_the_middle_of_a_block_the_very_record_is_left_out(policy: str, letters: int) -> None:
    calls: list[Any] = []
    topology = _failing(calls).build()
    batches = _fed(topology, [1, "bad", 2])
    expected, found = run_both(topology, topology.sub_topologies[0], batches, TaskSettings(on_processing_error=policy))
    assert found.left == expected.left
    assert found.dropped == expected.dropped == {"processing error": 1}
    assert [value for _, _, value, _, _ in found.left["out"]] == [b"1", b"2"]
    assert len(found.left.get("letters", [])) == letters
    assert calls == [1, "bad", 2] * 2  # once in each of the two runs


def test_the_error_names_the_record() -> None:
    topology = _failing([]).build()
    messages = []
    for in_blocks in (False, True):
        with pytest.raises(ProcessingError) as failed:
            run_both(
                topology,
                topology.sub_topologies[0],
                _fed(topology, [1, "bad", 2]),
                TaskSettings(),
                only=in_blocks,
            )
        messages.append(str(failed.value))
    assert messages[0] == messages[1]
    assert "operator careful failed on a record of from-0 offset 1" in messages[1]
    assert "(test_block_task.py, line " in messages[1]


def test_what_a_sink_cannot_write_follows_the_policy() -> None:
    builder = StreamsBuilder()
    _in(builder).to("out", key=serdes.string, value=serdes.long)
    with TopologyTestDriver(builder.build(), on_processing_error="skip") as driver:
        topic = driver.create_input_topic("in")
        for value in (1, "no number", 2):
            topic.pipe_input("k", value)
        assert [value for _, value in driver.create_output_topic("out").read_key_values_to_list()] == [1, 2]
        assert driver.dropped_records_total == 1


def test_operators_that_share_a_store_are_an_island() -> None:
    class Processor:
        def process(self, record: Record) -> None: ...

    builder = StreamsBuilder()
    builder.add_state_store("seen", key=serdes.string, value=serdes.json)
    stream = _in(builder).filter(lambda key, value: True, name="before")
    for name in ("first", "second"):
        stream.process(Processor, "seen", key=serdes.string, value=serdes.json, name=name)
    stream.map_values(lambda value: value, name="beside").to("out", name="sink")
    units = _plan(builder).units
    (island,) = [unit for unit in units if unit.is_island]
    assert island.nodes == ("first", "second")
    assert "they share store seen" in island.why
    assert [unit.nodes for unit in units if unit.nodes[0] in ("before", "beside", "sink")] == [
        ("before",),
        ("beside",),
        ("sink",),
    ]


def test_what_lies_between_them_belongs_to_the_island() -> None:
    class Processor:
        def process(self, record: Record) -> None: ...

    builder = StreamsBuilder()
    builder.add_state_store("seen", key=serdes.string, value=serdes.json)
    first = _in(builder).process(Processor, "seen", key=serdes.string, value=serdes.json, name="first")
    between = first.map_values(lambda value: value, name="between")
    between.process(Processor, "seen", key=serdes.string, value=serdes.json, name="second").to("out", name="end")
    (island,) = [unit for unit in _plan(builder).units if unit.is_island]
    assert island.nodes == ("first", "between", "second", "end")


def test_paths_without_end_are_one_island() -> None:
    builder = StreamsBuilder()
    stream = _in(builder)
    for number in range(14):
        one = stream.filter(lambda key, value: True, name=f"one-{number}")
        stream = one.merge(stream.filter(lambda key, value: True, name=f"other-{number}"))
    stream.to("out")
    (island,) = _plan(builder).units
    assert island.why == "more than 2048 paths lead through it"
