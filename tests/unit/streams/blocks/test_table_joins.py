"""Joins over blocks: a record finds the table's row of its moment, though the table's rows are written before it."""

from __future__ import annotations

from typing import Any

import pytest
from support.block_runs import Fed, Ran, run_both

from suiro.streams import Materialized, StreamsBuilder, explain, serdes
from suiro.streams.blocks import BlockPlan, block_plan
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Record

OF_JSON = {"key": serdes.string, "value": serdes.json}


def _stream(builder: StreamsBuilder) -> Any:
    return builder.stream("in", **OF_JSON)


def _table(builder: StreamsBuilder, topic: str = "rows") -> Any:
    return builder.table(topic, **OF_JSON, materialized=Materialized.as_(f"store-{topic}"))


def _plan(builder: StreamsBuilder) -> BlockPlan:
    topology = builder.build()
    return block_plan(topology, topology.sub_topologies[0])


def _ran(builder: StreamsBuilder, sent: list[tuple[str, Any, Any]], policy: str = "fail") -> Ran:
    """Over blocks, and as the interpreter does; all records in one block."""
    topology = builder.build()
    (sub,) = topology.sub_topologies
    inputs = {topic: node.name for node in sub.inputs for topic in node.operator.topics}  # type: ignore[union-attr]
    fed = [Fed(inputs[topic], Record(key, value, time)) for time, (topic, key, value) in enumerate(sent)]
    expected, found = run_both(topology, sub, [[fed]], TaskSettings(on_processing_error=policy))
    assert (found.left, found.dropped, found.kept) == (expected.left, expected.dropped, expected.kept)
    return found


def _values(ran: Ran) -> list[bytes]:
    return [value for _, _, value, _, _ in ran.left["out"]]


def test_a_record_finds_the_row_of_its_moment() -> None:
    builder = StreamsBuilder()
    _stream(builder).left_join(_table(builder), lambda left, row: [left, row]).to("out", **OF_JSON)
    assert not [unit for unit in _plan(builder).units if unit.is_island]
    sent = [
        *(("in", "k", 1), ("rows", "k", "a"), ("in", "k", 2), ("rows", "other", "b"), ("in", "k", 3)),
        *(("rows", "k", None), ("in", "k", 4), ("rows", "k", "c"), ("rows", "k", "d"), ("in", "k", 5)),
    ]
    assert _values(_ran(builder, sent)) == [b"[1,null]", b'[2,"a"]', b'[3,"a"]', b"[4,null]", b'[5,"d"]']


def test_a_row_that_was_replaced_is_what_its_serde_reads() -> None:
    builder = StreamsBuilder()
    rows = _table(builder).map_values(lambda value: (value, {"b": 1, "a": 2}), value=serdes.json)
    found: list[Any] = []
    _stream(builder).join(rows, lambda left, row: found.append(row) or left).to("out", **OF_JSON)
    _ran(builder, [("rows", "k", 1), ("in", "k", 1), ("rows", "k", 2), ("in", "k", 2), ("rows", "k", 3)])
    assert found == [[1, {"a": 2, "b": 1}], [2, {"a": 2, "b": 1}]] * 2
    assert [type(row) for row in found] == [list] * 4


def test_what_a_change_sets_off_finds_it() -> None:
    """The table's own changes as a stream, which was made before the join and after it."""
    for is_first in (True, False):
        builder = StreamsBuilder()
        table = _table(builder)
        early = table.to_stream() if is_first else None
        _stream(builder).join(table, lambda left, row: [left, row]).to("out", **OF_JSON)
        changes = table.to_stream() if early is None else early
        changes.join(table, lambda left, row: ["own", left, row]).to("out", **OF_JSON)
        assert not [unit for unit in _plan(builder).units if unit.is_island]
        values = _values(_ran(builder, [("rows", "k", 1), ("in", "k", 0), ("rows", "k", 2), ("rows", "k", 3)]))
        assert values == [b'["own",1,1]', b"[0,1]", b'["own",2,2]', b'["own",3,3]']


def test_a_joiner_that_fails_is_blamed_on_its_record() -> None:
    builder = StreamsBuilder()
    _stream(builder).join(_table(builder), lambda left, row: left / row, name="join").to("out", **OF_JSON)
    sent = [
        ("rows", "k", 2),
        ("in", "k", 4),
        ("rows", "k", 0),
        ("in", "k", 5),
        ("rows", "k", 1),
        ("in", "k", 6),
    ]
    ran = _ran(builder, sent, "dead-letter:letters")
    assert _values(ran) == [b"2.0", b"6.0"]
    ((_, _, _, _, (where, error)),) = ran.left["letters"]
    assert where == "(0, 3)"
    assert "ZeroDivisionError" in error


def test_keys_that_cannot_be_written_are_blamed_too() -> None:
    builder = StreamsBuilder()
    _stream(builder).left_join(_table(builder), lambda left, row: [left, row]).to("out", value=serdes.json)
    sent: list[tuple[str, Any, Any]] = [("in", 1, 1), ("in", None, 2), ("in", "k", None), ("in", "k", 3)]
    ran = _ran(builder, sent, "skip")
    assert _values(ran) == [b"[2,null]", b"[3,null]"]
    assert ran.dropped == {"processing error": 1, "null value": 1}


@pytest.mark.parametrize("is_versioned", [False, True])
def test_explain_says_how_a_join_runs(is_versioned: bool) -> None:
    builder = StreamsBuilder()
    kept = Materialized.versioned("rows", history=1000) if is_versioned else Materialized.as_("rows")
    table = builder.table("rows", **OF_JSON, materialized=kept)
    stream = _stream(builder).map_values(lambda value: value)
    stream.join(table, lambda left, row: left, name="join").to("out", **OF_JSON)
    (line,) = [line for line in explain(builder.build()).splitlines() if line.startswith("  ") and "join" in line]
    assert ("record by record" in line) is is_versioned
    assert ("a block at a time" in line) is not is_versioned


def test_a_join_below_a_processor_goes_record_by_record_with_its_table() -> None:
    class Processor:
        def process(self, record: Record) -> None: ...

    builder = StreamsBuilder()
    table = _table(builder)
    stream = _stream(builder).process_values(Processor, name="processor")
    stream.join(table, lambda left, row: left, name="join").to("out", name="sink")
    (island,) = [unit for unit in _plan(builder).units if unit.is_island]
    assert {"processor", "join", "sink"} < set(island.nodes)
    assert len(island.nodes) == 4  # and the table
    assert "they share store store-rows" in island.why
