"""Drawn topologies on Spark, many as one query: the interpreter's answer, and the same for every cut.

One draw in an ordinary run; `make soak` draws for half of `SUIRO_SOAK_SECONDS` each.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.drawn_topologies import Drawn, drawn, is_varied
from support.spark_streams import Got, Running, by_key, interpreted, last_by_key

from suiro.streams import StreamsBuilder

pytestmark = pytest.mark.spark

TOPOLOGIES = 12
SECONDS_OF_A_DRAW = 30

one_draw = settings(
    max_examples=1,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
many_draws = settings(
    one_draw, max_examples=max(1, int(os.environ.get("SUIRO_SOAK_SECONDS", "600")) // 2 // SECONDS_OF_A_DRAW)
)
lists_of_cases = st.lists(drawn(), min_size=TOPOLOGIES, max_size=TOPOLOGIES).filter(is_varied)
lists_with_keys = st.lists(drawn(null_keys=False), min_size=TOPOLOGIES, max_size=TOPOLOGIES).filter(is_varied)
limits = st.integers(20, 150)


class Cases:
    """Drawn topologies as one."""

    def __init__(self, cases: list[Drawn]) -> None:
        self.run = uuid4().hex[:6]
        self.cases = {f"{self.run}.{number}.": case for number, case in enumerate(cases)}
        builder = StreamsBuilder()
        for prefix, case in self.cases.items():
            case.build(builder, prefix)
        self.topology = builder.build()
        self.sent = {prefix: case.sent(prefix) for prefix, case in self.cases.items()}

    def on_spark(self, spark: Any, node: Any, *, limit: int | None, **options: Any) -> dict[str, list[Got]]:
        with Running(
            spark,
            self.topology,
            application_id=f"drawn-{uuid4().hex[:6]}",
            bootstrap_servers=node.bootstrap_servers,
            directory=Path(mkdtemp(prefix="suiro-drawn-")),
            before=[record for sent in self.sent.values() for record in sent],
            max_offsets_per_trigger=limit,
            **options,
        ) as running:
            return running.finish()


@one_draw
@given(lists_of_cases, limits)
def test_spark_gives_what_the_interpreter_gives(
    spark: Any, suiro_node: Any, drawn_cases: list[Drawn], limit: int
) -> None:
    compare_with_interpreter(spark, suiro_node, drawn_cases, limit)


@one_draw
@given(lists_with_keys, limits, st.sampled_from([1, 4]))
def test_the_cut_does_not_matter(
    spark: Any, suiro_node: Any, drawn_cases: list[Drawn], limit: int, partitions: int
) -> None:
    compare_cuts(spark, suiro_node, drawn_cases, limit, partitions)


@pytest.mark.soak
@pytest.mark.timeout(0)
@many_draws
@given(lists_of_cases, limits)
def test_spark_gives_what_the_interpreter_gives_for_long(
    spark: Any, suiro_node: Any, drawn_cases: list[Drawn], limit: int
) -> None:
    compare_with_interpreter(spark, suiro_node, drawn_cases, limit)


@pytest.mark.soak
@pytest.mark.timeout(0)
@many_draws
@given(lists_with_keys, limits, st.sampled_from([1, 4]))
def test_the_cut_does_not_matter_for_long(
    spark: Any, suiro_node: Any, drawn_cases: list[Drawn], limit: int, partitions: int
) -> None:
    compare_cuts(spark, suiro_node, drawn_cases, limit, partitions)


def compare_with_interpreter(spark: Any, suiro_node: Any, drawn_cases: list[Drawn], limit: int) -> None:
    cases = Cases(drawn_cases)
    found = cases.on_spark(spark, suiro_node, limit=limit, emit="every")
    wanted = {}
    for prefix, sent in cases.sent.items():
        wanted[f"{prefix}out"] = interpreted(cases.topology, sent)[f"{prefix}out"]
    found = {topic: found[topic] for topic in wanted}
    differing = []
    for prefix, case in cases.cases.items():
        look = last_by_key if "foreign" in case.text else by_key
        want, got = look(wanted[f"{prefix}out"]), look(found[f"{prefix}out"])
        if want != got:
            differing.append(f"{prefix}{case!r}\n  expected {want}\n  found    {got}")
    assert not differing, f"limit {limit}, {len(differing)} differ:\n" + "\n".join(differing)


def compare_cuts(spark: Any, suiro_node: Any, drawn_cases: list[Drawn], limit: int, partitions: int) -> None:
    """All at once, and in many micro-batches: the same sequence for each key; with the default emission the same
    last row."""
    whole, parts, latest = (Cases(drawn_cases) for _ in range(3))
    wanted = whole.on_spark(spark, suiro_node, limit=None, partitions=partitions, emit="every")
    found = parts.on_spark(spark, suiro_node, limit=limit, partitions=partitions, emit="every")
    rows = latest.on_spark(spark, suiro_node, limit=limit, partitions=partitions)
    differing = []
    for number, case in enumerate(drawn_cases):
        want, got, last = (
            outputs[f"{cases.run}.{number}.out"] for cases, outputs in ((whole, wanted), (parts, found), (latest, rows))
        )
        look = last_by_key if "foreign" in case.text else by_key
        if look(want) != look(got):
            differing.append(f"{case!r}\n  at once {look(want)}\n  in parts {look(got)}")
        if last_by_key(want) != last_by_key(last):
            differing.append(f"{case!r}\n  last rows {last_by_key(want)}\n  by default {last_by_key(last)}")
    assert not differing, f"limit {limit}, partitions {partitions}, {len(differing)} differ:\n" + "\n".join(differing)
