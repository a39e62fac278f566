"""Every known case of Kafka Streams on Spark, all of them as one topology.

With each record in a micro-batch of its own, every step must come out as written. (A case of more than `LONGEST`
records gives records of different keys to one micro-batch if no expectation stands between them.) With all records
there from the start, in one micro-batch or in many, the answer is the interpreter's for the order in which a task takes
them.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.spark_streams import Running, Sent, by_key, interpreted, last_by_key
from support.stream_cases import Case, Check, build, cases

from suiro.streams import StreamsBuilder
from suiro.streams.records import Record
from suiro.streams.serdes import json as json_serde
from suiro.streams.topology.nodes import Sink

pytestmark = pytest.mark.spark
LONGEST = 23
"""Records of a case, each of which is a micro-batch. One case has 52, with which all others would wait."""
Turn = tuple[list[Sent], list[dict[str, Any]]]
"""A micro-batch's records of a case, and the expectations behind them."""


def _topology(prefixes: dict[str, str]) -> Any:
    builder = StreamsBuilder()
    for case in cases():
        build(case, builder, prefixes[case.id])
    return builder.build()


@pytest.fixture
def prefixes() -> dict[str, str]:
    run = uuid4().hex[:6]
    return {case.id: f"{run}.{case.id.replace('/', '.')}." for case in cases()}


def _sent(case: Case, prefix: str) -> list[Sent]:
    return [Sent(prefix + step["send"], step["k"], step["v"], step["ts"]) for step in case.sends]


def _turns(case: Case, prefix: str) -> list[Turn]:
    turns: list[Turn] = [([], [])]
    for step in case.steps:
        if "send" not in step:
            turns[-1][1].append(step)
            continue
        sent = Sent(prefix + step["send"], step["k"], step["v"], step["ts"])
        records, expected = turns[-1]
        if (
            len(case.sends) > LONGEST
            and not expected
            and all(one.topic == sent.topic and one.key != sent.key for one in records)
        ):
            records.append(sent)
        else:
            turns.append(([sent], []))
    return turns


def _records(topology: Any, sink: str, got: list[Any]) -> list[Record]:
    operator = next(n.operator for n in topology.nodes if isinstance(n.operator, Sink) and n.operator.topic == sink)
    key, value = operator.key or json_serde, operator.value or json_serde
    return [
        Record(
            None if item.key is None else key.deserialize(sink, item.key),
            None if item.value is None else value.deserialize(sink, item.value),
            item.timestamp,
        )
        for item in got
    ]


@pytest.mark.soak  # CI's time: 24 micro-batches of everything
def test_each_record_in_a_micro_batch_of_its_own(
    spark: Any, suiro_node: Any, tmp_path: Path, prefixes: dict[str, str]
) -> None:
    topology = _topology(prefixes)
    checks = {case.id: Check(case) for case in cases()}
    rounds = {case.id: _turns(case, prefixes[case.id]) for case in cases()}
    failed: list[str] = []
    with Running(
        spark,
        topology,
        application_id=f"vectors-{uuid4().hex[:6]}",
        bootstrap_servers=suiro_node.bootstrap_servers,
        directory=tmp_path,
        emit="every",
    ) as running:
        for turn in zip_longest(*rounds.values()):
            came = running.send([record for item in turn if item is not None for record in item[0]])
            for case, item in zip(cases(), turn, strict=True):
                check, prefix = checks[case.id], prefixes[case.id]
                for sink in case.sinks:
                    check.came_out(sink, _records(topology, prefix + sink, came[prefix + sink]))
                for step in item[1] if item is not None else []:
                    rows = check.everything.get(case.sinks[0], [])
                    kept = {row[0]: row[2] for row in rows}
                    store = {key: value for key, value in kept.items() if value is not None}
                    try:
                        check.step(step, store=lambda store=store: store, dropped=None)  # type: ignore[misc]
                    except AssertionError as error:
                        failed.append(f"{case.id} {step}: {error}")
    assert not failed, f"{len(failed)} steps differ:\n" + "\n".join(failed[:20])


@pytest.mark.parametrize(
    "limit",
    [
        # CI's time
        pytest.param(None, marks=pytest.mark.soak, id="one micro-batch"),
        pytest.param(70, marks=pytest.mark.soak, id="many micro-batches"),
        pytest.param(250, id="four micro-batches"),
    ],
)
def test_everything_is_there_from_the_start(
    spark: Any, suiro_node: Any, tmp_path: Path, prefixes: dict[str, str], limit: int | None
) -> None:
    topology = _topology(prefixes)
    sent = {case.id: _sent(case, prefixes[case.id]) for case in cases()}
    with Running(
        spark,
        topology,
        application_id=f"vectors-{uuid4().hex[:6]}",
        bootstrap_servers=suiro_node.bootstrap_servers,
        directory=tmp_path,
        before=[record for records in sent.values() for record in records],
        emit="every",
        max_offsets_per_trigger=limit,
    ) as running:
        came = running.finish()
    differing = []
    for case in cases():
        wanted = interpreted(topology, sent[case.id])
        for sink in case.sinks:
            topic = prefixes[case.id] + sink
            # Questions of foreign keys that were put and withdrawn within a micro-batch have no answer of their own.
            look = last_by_key if "foreign-key" in case.id else by_key
            if look(came[topic]) != look(wanted[topic]):
                differing.append(f"{topic}: expected {look(wanted[topic])}, found {look(came[topic])}")
    assert not differing, f"{len(differing)} cases differ:\n" + "\n".join(differing[:20])
