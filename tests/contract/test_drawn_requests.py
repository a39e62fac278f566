"""Drawn sequences of requests, each sent to the node and to Apache Kafka: the same answer at every step.

A sequence is made of phrases (a transaction, the life of a group, a moment of compaction), cut, mixed and disturbed
by single steps, so that much of it is about something that exists. The steps are in `support.drawn_requests`.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st
from support import drawn_groups as groups_of
from support import drawn_requests as steps_of
from support.admin import ask
from support.comparison import differences
from support.drawn_requests import COMPACTED, EARLIEST, LATEST, MAX_TIMESTAMP, Side
from support.waiting import wait_until
from support.wire import Wire

pytestmark = pytest.mark.kafka

Step = tuple[Callable[..., Any], tuple[Any, ...]]
KEPT = {"retention.ms": "-1"}

topic, group, producer = (
    st.sampled_from(("t0", "t1")),
    st.sampled_from(("g0", "g1")),
    st.sampled_from(("p0", "p1")),
)
index, offset = st.sampled_from((0, 0, 0, 1, 2)), st.integers(0, 5)
record = st.tuples(st.sampled_from("abc"), st.sampled_from((True, True, False)))
keys = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from((True, True, False))), min_size=1, max_size=3).map(
    tuple
)
isolation = st.integers(0, 1)
produce_version = st.sampled_from((11, 12, 12))
rarely = st.sampled_from((*(False,) * 9, True))


def step(function: Callable[..., Any], *arguments: Any) -> st.SearchStrategy[Step]:
    drawn = (one if isinstance(one, st.SearchStrategy) else st.just(one) for one in arguments)
    return st.tuples(st.just(function), st.tuples(*drawn))


def produced(by: Any = producer, to: Any = topic, version: Any = produce_version) -> st.SearchStrategy[Step]:
    return step(steps_of.produce, by, to, index, keys, st.sampled_from((*(0,) * 9, 1, -1)), rarely, version)


SINGLE = st.one_of(
    step(steps_of.create_topic, topic, st.integers(0, 3), st.sampled_from((KEPT, {"cleanup.policy": "no"}))),
    step(steps_of.create_topic, topic, st.integers(1, 3), st.sampled_from((KEPT, COMPACTED))),
    step(steps_of.delete_topic, topic),
    step(steps_of.create_partitions, topic, st.integers(0, 4)),
    step(
        steps_of.alter_config,
        topic,
        st.sampled_from((0, 0, 1, 2, 3)),
        st.sampled_from(("cleanup.policy", "retention.ms", "max.message.bytes", "no.such.name")),
        st.sampled_from(("compact", "delete", "60000000", "-5", "")),
    ),
    step(steps_of.describe_configs, topic),
    step(steps_of.init_producer, producer, st.booleans()),
    produced(),
    step(steps_of.add_partition, producer, topic, index),
    step(steps_of.add_offsets, producer, group),
    step(steps_of.end_transaction, producer, st.booleans(), st.sampled_from((4, 5))),
    step(steps_of.transaction_state, producer),
    step(steps_of.active_producers, topic, index),
    step(steps_of.commit_in_transaction, producer, group, topic, offset, st.sampled_from((4, 5))),
    step(steps_of.offsets, topic, index, st.sampled_from((EARLIEST, LATEST, MAX_TIMESTAMP, 0)), isolation),
    step(steps_of.fetch, topic, index, st.none() | offset, isolation),
    step(steps_of.delete_records, topic, index, st.integers(-1, 4)),
    step(steps_of.compact, topic, index),
    step(groups_of.commit_offset, group, topic, index, offset, st.sampled_from(("nobody", "classic", "new"))),
    step(groups_of.fetch_offsets, group, st.booleans()),
    step(groups_of.remove_offsets, group, topic, index),
    step(groups_of.delete_group, group),
    step(groups_of.groups),
    step(groups_of.member, group, st.integers(0, 1), topic, st.sampled_from(("join", "beat", "leave"))),
    step(groups_of.classic_member, group, topic, st.sampled_from(("join", "sync", "beat", "leave"))),
)  # fmt: skip


EVERY_STEP = (
    steps_of.active_producers, steps_of.add_offsets, steps_of.add_partition, steps_of.alter_config,
    groups_of.classic_member, steps_of.commit_in_transaction, groups_of.commit_offset, steps_of.compact,
    steps_of.create_partitions, steps_of.create_topic, groups_of.delete_group, steps_of.delete_records,
    steps_of.delete_topic, steps_of.describe_configs, steps_of.end_transaction, steps_of.fetch,
    groups_of.fetch_offsets, groups_of.groups, steps_of.init_producer, groups_of.member, steps_of.offsets,
    steps_of.produce, groups_of.remove_offsets, steps_of.transaction_state,
)  # fmt: skip


@st.composite
def transaction(draw: st.DrawFn) -> list[Step]:
    """V2 adds what it writes to by writing; V1 says so before."""
    who, end = draw(producer), draw(st.sampled_from((4, 5)))
    steps = [draw(step(steps_of.init_producer, who, True))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.integers(0, 3)) == 0:
            of = draw(group)
            if end == 4:
                steps.append((steps_of.add_offsets, (who, of)))
            steps.append(draw(step(steps_of.commit_in_transaction, who, of, topic, offset, end)))
            continue
        one = draw(produced(by=who, version=end + 7))
        if end == 4:
            steps.append((steps_of.add_partition, one[1][:3]))
        steps.append(one)
    steps += draw(st.lists(SINGLE, max_size=2))
    steps.append(draw(step(steps_of.end_transaction, who, st.booleans(), end)))
    return [*steps, draw(step(steps_of.fetch, topic, index, None, isolation))]


@st.composite
def membership(draw: st.DrawFn) -> list[Step]:
    which, of = draw(group), draw(topic)
    if draw(st.booleans()):
        steps = [(groups_of.classic_member, (which, of, act)) for act in ("join", "sync", "beat")]
        who, last = "classic", (groups_of.classic_member, (which, of, "leave"))
    else:
        steps = [(groups_of.member, (which, n, of, "join")) for n in range(draw(st.integers(1, 2)))]
        who, last = "new", (groups_of.member, (which, 0, of, "leave"))
    steps += [(groups_of.groups, ()), draw(step(groups_of.commit_offset, which, of, index, offset, who))]
    steps += draw(st.lists(SINGLE, max_size=3))
    steps.append((groups_of.fetch_offsets, (which, draw(st.booleans()))))
    return [*steps, *([last] if draw(st.booleans()) else [])]


@st.composite
def compaction(draw: st.DrawFn) -> list[Step]:
    steps = draw(st.lists(produced(to=st.just("t1")), min_size=2, max_size=8))
    steps.append((steps_of.compact, ("t1", 0)))
    return [*steps, draw(step(steps_of.fetch, "t1", 0, None, isolation))]


PHRASES = st.one_of(transaction(), transaction(), membership(), compaction(), SINGLE.map(lambda one: [one]))
SEQUENCES = st.lists(PHRASES, min_size=2, max_size=8).map(lambda phrases: [one for some in phrases for one in some])


def compare(steps: list[Step], node: Wire, kafka: Wire, seen: Counter[str]) -> None:
    """`seen` counts what was answered to which step."""
    prefix = uuid4().hex[:10]
    ours, theirs = Side(node, prefix), Side(kafka, prefix)
    begin: list[Step] = [
        (steps_of.create_topic, ("t0", 2, KEPT)),
        (steps_of.create_topic, ("t1", 1, COMPACTED)),
        (steps_of.init_producer, ("p0", True)),
        (steps_of.init_producer, ("p1", False)),
    ]
    for side in (ours, theirs):
        for name in ("g0", "g1"):
            groups_of.assign_at_once(side, name)
    for function, arguments in begin + steps:
        mine, other = _lists(function(ours, *arguments)), _lists(function(theirs, *arguments))
        note(f"{function.__name__}{arguments}: {mine}")
        seen[f"{function.__name__}: {mine[0] if isinstance(mine, list) else mine}"] += 1
        assert not differences(mine, other), f"{function.__name__}{arguments}: node {mine}, kafka {other}"


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lists(entry) for name, entry in value.items()}
    return [_lists(entry) for entry in value] if isinstance(value, list | tuple) else value


def connected(*brokers: Any) -> tuple[Wire, ...]:
    """A connection to each, once their coordinators are there."""
    wires = []
    for broker in brokers:
        wire = Wire(broker.bootstrap_servers)
        wire.new_producer("first-to-ask")
        find = {"key_type": 0, "coordinator_keys": tuple(f"g{number}" for number in range(20))}
        wait_until(
            lambda wire=wire, find=find: "available" not in repr(ask(wire, "find_coordinator", 4, **find)),
            what="the groups' coordinators",
        )
        wires.append(wire)
    return tuple(wires)


@pytest.fixture(scope="module")
def both(kafka: Any, suiro_node: Any) -> Iterator[tuple[Wire, ...]]:
    wires = connected(suiro_node, kafka)
    yield wires
    for wire in wires:
        wire.__exit__()


WITHOUT_A_POLICY = (steps_of.alter_config, ("t1", 3, "cleanup.policy", "compact"))
DRAWN = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


# The same sequences at each run, and none made shorter (a broker does not begin anew with each try, so that takes
# minutes): new ones are drawn by `make soak`.
@settings(DRAWN, max_examples=15, derandomize=True, phases=(Phase.explicit, Phase.generate))
@example(steps=[(steps_of.alter_config, ("t0", 2, "cleanup.policy", ""))])
@example(steps=[WITHOUT_A_POLICY, (steps_of.delete_records, ("t1", 0, 4))])
@given(steps=SEQUENCES)
def test_drawn_requests(steps: list[Step], both: tuple[Wire, Wire]) -> None:
    compare(steps, *both, Counter())


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_drawn_requests(both: tuple[Wire, Wire]) -> None:
    """For as long as SUIRO_SOAK_SECONDS (600); then every kind of step must have had an answer that is no error."""
    ends = time.monotonic() + int(os.environ.get("SUIRO_SOAK_SECONDS", "600"))
    seen: Counter[str] = Counter()

    @settings(DRAWN, max_examples=50)
    @given(steps=SEQUENCES)
    def some(steps: list[Step]) -> None:
        compare(steps, *both, seen)

    while True:
        some()
        if time.monotonic() >= ends:
            break
    print("\n".join(f"{count:6} {what}" for what, count in sorted(seen.items())))
    served = {what.partition(":")[0] for what in seen if "none" in what or "cleaned" in what or "groups: {'g" in what}
    assert served == {function.__name__ for function in EVERY_STEP}
