"""Every known case of Kafka Streams' own tests, step by step, in the interpreter."""

from __future__ import annotations

import pytest
from support.stream_cases import Case, Check, build, cases, store_name

from suiro.streams import StreamsBuilder
from suiro.testing.topology_test_driver import TopologyTestDriver


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
def test_case(case: Case) -> None:
    builder = StreamsBuilder()
    build(case, builder)
    check = Check(case)
    with TopologyTestDriver(builder.build()) as driver:
        outputs = {sink: driver.create_output_topic(sink) for sink in case.sinks}
        inputs = {topic: driver.create_input_topic(topic) for topic in case.topics}
        for step in case.steps:
            if "send" in step:
                inputs[step["send"]].pipe_input(step["k"], step["v"], step["ts"])
                continue
            for sink, topic in outputs.items():
                check.came_out(sink, topic.read_records_to_list())
            check.step(
                step,
                store=lambda: dict(driver.get_key_value_store(store_name()).all()),
                dropped=driver.dropped_records_total,
            )


def test_all_cases_are_there() -> None:
    assert len(cases()) == 71
