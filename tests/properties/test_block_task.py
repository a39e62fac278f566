"""A task over blocks gives what the reference gives, whatever the topology, however blocks are cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, reject, settings
from hypothesis import strategies as st
from support.block_runs import Fed, Ran, run_both
from support.drawn_graphs import JOINS, TABLES, WINDOWS, graphs
from support.share import examples

from suiro.streams import StreamsBuilder
from suiro.streams.errors import TopologyError
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Record
from suiro.streams.topology.nodes import Repartition
from suiro.streams.topology.topology import Topology

SENT = st.lists(
    st.tuples(
        st.sampled_from(["in", "in", "in", "in1"]),
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([None, *range(8)]),
        st.sampled_from([0, 0, 1, 2, 5, 30]),
        st.sampled_from([0, 0, 0, 1, 12]),
        st.booleans(),
    ),
    max_size=30,
)


RUN = st.tuples(
    SENT,
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from(["skip", "dead-letter:letters"]),
    st.booleans(),
)
Build = Callable[[StreamsBuilder], None]


@settings(max_examples=examples(120), deadline=None)
@given(graphs(), RUN)
def test_the_answers_are_those_of_the_reference(build: Build, run: tuple[Any, ...]) -> None:
    compare(build, *run)


@settings(max_examples=examples(180), deadline=None)
@given(st.one_of(graphs(JOINS), graphs(WINDOWS), graphs(TABLES)), RUN)
def test_joins_and_windows_find_what_the_reference_finds(build: Build, run: tuple[Any, ...]) -> None:
    compare(build, *run)


def compare(
    build: Build,
    sent: list[tuple[str, str | None, int | None, int, int, bool]],
    cuts: list[int],
    every: int,
    policy: str,
    coalesces: bool,
) -> None:
    builder = StreamsBuilder()
    try:
        build(builder)
        topology = builder.build()
    except TopologyError:  # one stream cannot be repartitioned twice, say
        reject()
    task_settings = TaskSettings(on_processing_error=policy, coalesces=coalesces)
    now, records = 0, []
    for topic, key, value, step, late, has_header in sent:
        now += step
        records.append((topic, Record(key, value, max(0, now - late), (("h", b"1"),) if has_header else ())))
    carried: dict[str, list[Record]] = {}
    for sub in topology.sub_topologies:
        fed = _fed(topology, sub.inputs, records, carried)
        batches = _cut(fed, cuts, every)
        expected, found = run_both(topology, sub, batches, task_settings, _rows(topology))
        assert_same(found, expected)
        for name, left in expected.left.items():
            if name.startswith("/"):
                carried[name[1:]] = [
                    Record(key, value, timestamp, headers) for _, key, value, timestamp, headers in left
                ]


def assert_same(found: Ran, expected: Ran) -> None:
    assert found.left == expected.left
    assert found.dropped == expected.dropped
    assert found.kept == expected.kept


def _rows(topology: Topology) -> list[tuple[str, Any, Any]]:
    from suiro.streams.topology.nodes import GlobalTableSource

    return [
        (node.operator.store, key, f"row {key}")
        for node in topology.nodes
        if isinstance(node.operator, GlobalTableSource)
        for key in ("a", "b")
    ]


def _fed(
    topology: Topology, inputs: Any, records: list[tuple[str, Record]], carried: dict[str, list[Record]]
) -> list[Fed]:
    found: list[Fed] = []
    for node in inputs:
        if isinstance(node.operator, Repartition):
            time = -1
            for record in carried.get(node.name, []):
                time = max(time, record.timestamp + 3)
                if record.key is not None or node.operator.keeps_null_keys:
                    found.append(Fed(node.name, record, time))
    sources = {
        topic: node.name
        for node in inputs
        if not isinstance(node.operator, Repartition)
        for topic in node.operator.topics
    }
    found += [Fed(sources[topic], record) for topic, record in records if topic in sources]
    return sorted(found, key=lambda each: each.record.timestamp) if carried else found


def _cut(fed: list[Fed], cuts: list[int], every: int) -> list[list[list[Fed]]]:
    blocks, start, turn = [], 0, 0
    while start < len(fed):
        size = cuts[turn % len(cuts)]
        blocks.append(fed[start : start + size])
        start, turn = start + size, turn + 1
    return [blocks[index : index + every] for index in range(0, len(blocks), every)] or [[]]
