"""Windows over blocks: what fails in the middle of a block, and what was late."""

from __future__ import annotations

from typing import Any

import pytest
from support.block_runs import Fed, run_both

from suiro.streams import EmitStrategy, SessionWindows, StreamsBuilder, explain, serdes
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Record

OF_JSON: dict[str, Any] = {"key": serdes.string, "value": serdes.json}


def _sessions(builder: StreamsBuilder, *, is_final: bool = False) -> None:
    def add(key: Any, value: Any, found: list[Any]) -> list[Any]:
        if value == "bad":
            raise ValueError("it is bad")
        found.append(value)
        return found

    windows = (
        builder.stream("in", **OF_JSON)
        .group_by_key(**OF_JSON)
        .windowed_by(SessionWindows.of_gap(5, grace=2))
        .emit_strategy(EmitStrategy.on_window_close() if is_final else EmitStrategy.on_window_update())
    )
    table = windows.aggregate(list, add, lambda key, one, two: one + two, value=serdes.json, name="sessions")
    table.to_stream(lambda key, value: f"{key.key}@{key.start}-{key.end}").to("out", **OF_JSON)


@pytest.mark.parametrize("is_final", [False, True])
def test_sessions_of_a_block_are_those_of_the_interpreter(is_final: bool) -> None:
    builder = StreamsBuilder()
    _sessions(builder, is_final=is_final)
    topology = builder.build()
    (sub,) = topology.sub_topologies
    name = sub.inputs[0].name
    records = [
        *(Record("a", 1, 0), Record("b", 2, 1), Record("a", 3, 8), Record("a", "bad", 9), Record("a", 4, 4)),
        *(
            Record(None, 5, 50),
            Record("a", None, 9),
            Record("b", 6, 30),
            Record("a", 7, 2),
            Record("b", 8, 31),
        ),
    ]
    fed = [[[Fed(name, record) for record in records]]]
    expected, found = run_both(topology, sub, fed, TaskSettings(on_processing_error="dead-letter:letters"))
    assert (found.left, found.dropped, found.kept) == (expected.left, expected.dropped, expected.kept)
    assert found.dropped == {"null key": 1, "late": 1, "processing error": 1}
    ((_, _, _, _, (where, _)),) = found.left["letters"]
    assert where == "(0, 3)"
    results = [(key, value) for _, key, value, _, _ in found.left["out"]]
    # The record that failed left the session alone that it was to extend.
    assert (b"a@4-9", b"[3,4,null]") in results if not is_final else (b"b@1-1", b"[2]") in results


def test_a_record_is_late_by_what_its_input_partition_had_come_to() -> None:
    builder = StreamsBuilder()
    _sessions(builder)
    topology = builder.build()
    (sub,) = topology.sub_topologies
    name = sub.inputs[0].name
    fed = [
        [
            [
                Fed(name, Record("a", 1, 0), 0),
                Fed(name, Record("a", 2, 3), 30),
                Fed(name, Record("a", 3, 29), 30),
            ]
        ]
    ]
    expected, found = run_both(topology, sub, fed, TaskSettings())
    assert (found.left, found.dropped) == (expected.left, expected.dropped)
    assert found.dropped == {"late": 1}


def test_explain_says_that_sessions_go_over_blocks() -> None:
    builder = StreamsBuilder()
    _sessions(builder)
    (line,) = [line for line in explain(builder.build()).splitlines() if line.startswith("  sessions")]
    assert line == "  sessions: values, a block at a time"
