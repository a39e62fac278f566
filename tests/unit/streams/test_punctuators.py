"""Punctuators over tasks that are made anew for each micro-batch."""

from __future__ import annotations

from typing import Any

import pytest

from suiro.streams import StreamsBuilder, serdes
from suiro.streams.errors import ProcessingError
from suiro.streams.interpreter import Interpreter
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Origin, Record
from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES, Task
from suiro.streams.topology.nodes import Node


class Outputs:
    def __init__(self) -> None:
        self.keys: list[Any] = []

    def emit(self, node: Node, record: Record) -> None:
        self.keys.append(record.key)

    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None:
        raise AssertionError(error)


class Once:
    """Two functions; the first one cancels itself."""

    def init(self, context: Any) -> None:
        self.context = context
        self.scheduled = context.schedule(10, "stream-time", self.once)
        context.schedule(10, "stream-time", lambda time: self.tell("often", time))

    def once(self, time: int) -> None:
        self.scheduled.cancel()
        self.tell("once", time)

    def tell(self, key: str, time: int) -> None:
        self.context.forward(Record(key, 1, time))

    def process(self, record: Record) -> None:
        pass


class Replaced(Once):
    """Its first function is replaced by another one as soon as a record comes."""

    def process(self, record: Record) -> None:
        self.scheduled.cancel()
        self.context.schedule(10, "stream-time", lambda time: self.tell("other", time))


def _batches(processor: type[Once], times: list[int]) -> list[list[str]]:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.long).process(processor).to("out")
    topology = builder.build()
    (sub,) = topology.sub_topologies
    maps = {TIMES: OrderedMap()}
    found = []
    for time in times:
        outputs = Outputs()
        task = Task(topology, sub, partition=0, maps=maps, outputs=outputs, settings=TaskSettings())
        task.process(sub.inputs[0].name, Record("k", 1, time), None)
        task.end_of_batch()
        found.append(outputs.keys)
    return found


def test_a_cancelled_function_stays_so_in_the_next_micro_batch() -> None:
    assert _batches(Once, [0, 50, 100]) == [["once", "often"], ["often"], ["often"]]


def test_a_function_that_was_replaced_while_a_record_was_processed_comes_back() -> None:
    assert _batches(Replaced, [0, 50]) == [["often", "other"], ["often", "other"]]


class Two(Once):
    def init(self, context: Any) -> None:
        self.context = context
        context.schedule(10, "stream-time", lambda time: self.tell("ten", time))
        context.schedule(4, "stream-time", lambda time: self.tell("four", time))


def test_functions_of_stream_time_are_due_at_multiples_of_their_interval_and_in_that_order() -> None:
    """As in Kafka Streams, whenever the first record came."""
    called = _batches(Two, [25, 29, 31, 33, 45])
    assert called == [["ten", "four"], ["four"], ["ten"], ["four"], ["four", "ten"]]


class Nested(Once):
    """Its function schedules another one, which does so in turn."""

    def init(self, context: Any) -> None:
        self.context, self.number = context, 0
        self.again(0)

    def again(self, time: int) -> None:
        self.number += 1
        if time:
            self.tell(f"function {self.number - 1}", time)
        self.scheduled = self.context.schedule(10, "stream-time", self.again)


def test_a_function_that_a_function_schedules_is_called_with_the_next_record_first() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.long).process(Nested).to("out")
    run = Interpreter(builder.build())
    for time in (5, 6):
        run.pipe("in", time, b"k", bytes(8))
    assert [(item.key, item.record.timestamp) for item in run.outputs] == [
        (b"function 1", 5),
        (b"function 2", 6),
    ]


class Ticking(Once):
    def init(self, context: Any) -> None:
        self.context = context
        context.schedule(10, "wall-clock-time", lambda time: self.tell("tick", time))


def test_a_wall_clock_that_is_set_back_is_followed() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.long).process(Ticking).to("out")
    run = Interpreter(builder.build())
    run.pipe("in", 5, b"k", bytes(8))
    for now in (1_000, 100, 109, 110):
        run.advance_wall_clock(now)
    assert [item.record.timestamp for item in run.outputs] == [1_000, 110]


class Failing(Once):
    """Its first function fails each time."""

    def init(self, context: Any) -> None:
        self.context = context
        context.schedule(10, "stream-time", self.fail)
        context.schedule(10, "stream-time", lambda time: self.tell("often", time))
        context.schedule(10, "wall-clock-time", self.fail)

    def fail(self, time: int) -> None:
        raise ValueError("no service answers")


@pytest.mark.parametrize("policy", ["fail", "skip", "dead-letter:dead"])
def test_a_punctuator_that_fails_is_treated_as_a_record_that_does(policy: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.long).process(Failing, name="watch").to("out")
    run = Interpreter(builder.build(), settings=TaskSettings(on_processing_error=policy))
    if policy == "fail":
        told = r"a punctuator of watch failed at 5: ValueError: no service answers"
        with pytest.raises(ProcessingError, match=told):
            run.pipe("in", 5, b"k", bytes(8))
        with pytest.raises(ProcessingError, match=r"a punctuator of watch failed at 50"):
            run.advance_wall_clock(50)
        return
    run.pipe("in", 5, b"k", bytes(8))
    run.pipe("in", 25, b"k", bytes(8))
    run.advance_wall_clock(50)
    assert [(item.topic, item.key, item.record.timestamp) for item in run.outputs] == [
        ("out", b"often", 5),
        ("out", b"often", 25),
    ]
    assert run.dropped_total == 3
