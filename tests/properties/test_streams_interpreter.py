"""What is true of every topology in the interpreter."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.drawn_topologies import Drawn, drawn
from support.share import examples
from support.spark_streams import encoded

from suiro.streams import StreamsBuilder
from suiro.streams.interpreter import Interpreter


def _outputs(interpreter: Interpreter) -> list[Any]:
    return [(item.topic, item.key, item.value, item.record.timestamp) for item in interpreter.outputs]


@settings(max_examples=examples(150), deadline=None)
@given(drawn(), st.integers(1, 7))
def test_a_topology_that_stops_and_goes_on_gives_the_same(case: Drawn, every: int) -> None:
    builder = StreamsBuilder()
    case.build(builder, "")
    topology = builder.build()
    whole, parts = Interpreter(topology), Interpreter(topology)
    found: list[Any] = []
    for number, record in enumerate(case.sent("")):
        key, value = encoded(topology, record)
        whole.pipe(record.topic, record.timestamp, key, value)
        if number and number % every == 0:
            parts.end_of_batch()
            found += _outputs(parts)
            parts = Interpreter(topology, maps=parts.maps)
        parts.pipe(record.topic, record.timestamp, key, value)
    found += _outputs(parts)
    assert found == _outputs(whole)


@settings(max_examples=examples(100), deadline=None)
@given(drawn(null_keys=False), st.sampled_from([1_000 * 60 * 11, 3_600_000 * 7]))
def test_time_may_begin_anywhere(case: Drawn, shift: int) -> None:
    """A shift by a multiple of every window changes nothing but timestamps and windows."""
    step = 2 * 2 * 5 * 3 * 7
    moved_by = shift // step * step
    results = []
    for by in (step, step + moved_by):
        builder = StreamsBuilder()
        case.build(builder, "")
        interpreter = Interpreter(builder.build())
        for record in case.sent(""):
            key, value = encoded(interpreter.topology, record)
            interpreter.pipe(record.topic, record.timestamp + by, key, value)
        results.append([(item.value, item.record.timestamp - by) for item in interpreter.outputs])
    assert results[0] == results[1]
