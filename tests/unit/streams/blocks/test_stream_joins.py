"""Stream-stream joins over blocks: both sides' records in the order of the interpreter, and records that waited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.block_runs import Fed, Ran, run_both

from suiro.streams import JoinWindows, StreamsBuilder, explain, serdes
from suiro.streams.blocks import block_plan
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Headers, Record

OF_JSON: dict[str, Any] = {"key": serdes.string, "value": serdes.json}


def _joined(joiner: Callable[[Any, Any], Any], join: str = "join") -> StreamsBuilder:
    builder = StreamsBuilder()
    left, right = (builder.stream(name, **OF_JSON) for name in ("left", "right"))
    windows = JoinWindows.of_time_difference(5, grace=1)
    result = getattr(left, join)(right, joiner, windows, **OF_JSON, other_value=serdes.json, name="join")
    result.to("out", **OF_JSON)
    return builder


def _ran(builder: StreamsBuilder, sent: list[tuple[str, Any, Any, int, Headers]], policy: str = "fail") -> Ran:
    topology = builder.build()
    (sub,) = topology.sub_topologies
    assert not [unit for unit in block_plan(topology, sub).units if unit.is_island]
    names = {topic: node.name for node in sub.inputs for topic in node.operator.topics}  # type: ignore[union-attr]
    fed = [Fed(names[topic], Record(key, value, time, headers)) for topic, key, value, time, headers in sent]
    expected, found = run_both(topology, sub, [[fed], []], TaskSettings(on_processing_error=policy))
    assert (found.left, found.dropped, found.kept) == (expected.left, expected.dropped, expected.kept)
    return found


def test_each_pair_is_joined_once_in_the_order_of_records() -> None:
    ran = _ran(
        _joined(lambda left, right: [left, right]),
        [
            ("left", "k", 1, 0, ()),
            ("right", "k", 2, 3, ()),
            ("right", "other", 3, 3, ()),
            ("left", "k", 4, 4, ()),
        ],
    )
    assert [value for _, _, value, _, _ in ran.left["out"]] == [b"[1,2]", b"[4,2]"]


def test_records_that_waited_keep_their_headers() -> None:
    for join in ("left_join", "outer_join"):
        ran = _ran(
            _joined(lambda left, right: [left, right], join),
            [
                ("left", "k", 1, 0, (("a", b"1"),)),
                ("right", "k", 2, 9, ()),
                ("left", "k", 3, 10, (("b", b"2"),)),
            ],
        )
        assert [(value, headers) for _, _, value, _, headers in ran.left["out"]] == [
            (b"[1,null]", (("a", b"1"),)),
            (b"[3,2]", (("b", b"2"),)),
        ]


def test_a_record_that_waited_fails_by_itself() -> None:
    def careful(left: Any, right: Any) -> Any:
        if left == "bad":
            raise ValueError("it is bad")
        return [left, right]

    sent: list[tuple[str, Any, Any, int, Headers]] = [("left", "k", "bad", 0, ()), ("left", "k", 2, 20, ())]
    ran = _ran(_joined(careful, "left_join"), [*sent, ("right", "k", 3, 20, ())], "dead-letter:letters")
    assert [value for _, _, value, _, _ in ran.left["out"]] == [b"[2,3]"]
    ((_, _, value, _, (where, _)),) = ran.left["letters"]
    assert (value, where) == ("'bad'", "None")  # it is not known any more where it came from


@pytest.mark.parametrize("policy", ["skip", "dead-letter:letters"])
def test_what_cannot_be_written_is_blamed_on_its_record(policy: str) -> None:
    sent: list[tuple[str, Any, Any, int, Headers]] = [
        *(
            ("left", "k", 1, 0, ()),
            ("right", 5, 2, 1, ()),
            ("right", "k", {1, 2}, 1, ()),
            ("right", None, 2, 1, ()),
        ),
        *(("right", "k", None, 1, ()), ("right", "k", 3, 2, ())),
    ]
    ran = _ran(_joined(lambda left, right: [left, right]), sent, policy)
    assert ran.dropped == {"processing error": 2, "null key": 1, "null value": 1}
    assert [value for _, _, value, _, _ in ran.left["out"]] == [b"[1,3]"]


def test_a_stream_joined_with_itself() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("left", **OF_JSON)
    windows = JoinWindows.of_time_difference(5, grace=1)
    joined = stream.join(stream, lambda left, right: [left, right], windows, **OF_JSON, other_value=serdes.json)
    joined.to("out", **OF_JSON)
    ran = _ran(builder, [("left", "k", 1, 0, ()), ("left", "k", 2, 1, ())])
    values = [value for _, _, value, _, _ in ran.left["out"]]
    assert sorted(values) == [b"[1,1]", b"[1,2]", b"[2,1]", b"[2,2]"]


def test_explain_says_that_they_go_over_blocks() -> None:
    lines = explain(_joined(lambda left, right: left).build()).splitlines()
    assert "  join-merge: values, a block at a time" in lines
