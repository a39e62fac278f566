"""`TopologyTestDriver`: what its topics give, and which mistakes of a test it names."""

from __future__ import annotations

import math
from typing import Any

import pytest

from suiro.errors import ConfigError, UsageError
from suiro.streams import Record, StreamsBuilder, serdes
from suiro.testing import TopologyTestDriver


def driver(*, to: Any = "out", **options: Any) -> TopologyTestDriver:
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    builder.stream("in", on_deserialization_error="dead-letter:unreadable").map_values(lambda n: 10 // n).to(to)
    return TopologyTestDriver(builder.build(), **options)


def test_an_output_topic_is_read_record_by_record_or_as_a_whole() -> None:
    with driver() as under_test:
        source, out = under_test.create_input_topic("in"), under_test.create_output_topic("out")
        source.pipe_key_value_list([("a", 1), ("b", 2), ("c", 5), ("d", 10)])
        assert out.read_key_value() == ("a", 10)
        assert out.read_value() == 5
        assert out.queue_size == 2
        assert out.read_values_to_list() == [2, 1]
        assert out.is_empty
        with pytest.raises(UsageError, match="topic 'out' has no record that was not read yet"):
            out.read_value()


def test_a_topic_that_the_topology_does_not_have_is_named() -> None:
    """Otherwise a test of a misspelt topic sees that nothing is written, and passes."""
    with driver(on_processing_error="dead-letter:failed") as under_test:
        with pytest.raises(UsageError, match="does not read topic 'inn'; it reads in"):
            under_test.create_input_topic("inn")
        with pytest.raises(UsageError, match="does not write topic 'outt'; it writes out, failed, unreadable"):
            under_test.create_output_topic("outt")
        under_test.create_input_topic("in").pipe_input("a", 0)
        assert under_test.create_output_topic("failed").read_key_value() == ("a", 0)
        assert under_test.create_output_topic("unreadable").is_empty


def test_a_topology_that_chooses_its_topics_may_write_any() -> None:
    with driver(to=lambda key, value, record: f"to-{key}") as under_test:
        under_test.create_input_topic("in").pipe_input("a", 2)
        assert under_test.create_output_topic("to-a").read_value() == 5


@pytest.mark.parametrize("name", ["on_processing_error", "on_deserialization_error"])
def test_an_unknown_policy_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f'{name}=\'ignore\' is none of "fail", "skip" and'):
        driver(**{name: "ignore"})


@pytest.mark.parametrize(
    ("serde", "key", "forwarded", "keeps"),
    [(serdes.double, math.nan, math.nan, True), (serdes.json, 1, True, False), (serdes.json, [1], [1.0], False)],
)
def test_process_values_keeps_the_key_as_its_topic_has_it(serde: Any, key: Any, forwarded: Any, keeps: bool) -> None:
    class Forwarding:
        def init(self, context: Any) -> None:
            self.forward = context.forward

        def process(self, record: Record) -> None:
            self.forward(Record(forwarded, record.value, record.timestamp))

    builder = StreamsBuilder(key=serde, value=serdes.long)
    builder.stream("in").process_values(Forwarding).to("out")
    with TopologyTestDriver(builder.build(), on_processing_error="skip") as under_test:
        under_test.create_input_topic("in").pipe_input(key, 1)
        assert under_test.create_output_topic("out").is_empty is not keeps
