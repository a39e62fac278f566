"""Aggregates of re-grouped tables over blocks give what the interpreter gives."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.block_runs import Fed, run_both

from suiro.streams import KGroupedTable, KTable, StreamsBuilder, serdes
from suiro.streams.blocks import block_plan
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Change, Record
from suiro.streams.topology.nodes import Repartition

OF_JSON = {"key": serdes.string, "value": serdes.json}


def _pair(key: str, row: Any) -> Any:
    """`row`: group and number; a group of 3 has no pair, one of 4 no key, one of 5 no value."""
    group, number = row
    if number == 13:
        raise ValueError("thirteen")
    return None if group == 3 else (None if group == 4 else f"g{group}", None if group == 5 else number)


def _add(key: str, row: int, found: list[int]) -> Any:
    found.append(row)  # in place
    if row == 7:
        raise ValueError("seven")
    return found


def _subtract(key: str, row: int, found: list[int]) -> Any:
    """Without a row the aggregate goes."""
    return [each for each in found if each != row] or None


def _counted(grouped: KGroupedTable) -> KTable:
    return grouped.count()


def _reduced(grouped: KGroupedTable) -> KTable:
    return grouped.reduce(lambda total, row: total + row, lambda total, row: None if total == row else total - row)


def _aggregated(grouped: KGroupedTable) -> KTable:
    return grouped.aggregate(list, _add, _subtract, value=serdes.json)


@pytest.mark.parametrize("made", [_counted, _reduced, _aggregated])
@pytest.mark.parametrize("asks_for_old", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_results_are_those_of_the_interpreter(made: Any, asks_for_old: bool, seed: int) -> None:
    builder = StreamsBuilder()
    table = made(builder.table("in", **OF_JSON).group_by(_pair, key=serdes.string, value=serdes.long))
    if asks_for_old:
        table.group_by(lambda key, value: (key, [value]), **OF_JSON).count().to_stream().to("again", **OF_JSON)
    else:
        table.to_stream().to("out", **OF_JSON)
    topology = builder.build()
    drawn = random.Random(seed)
    inputs: dict[str, list[Record]] = {
        "in": [
            Record(
                drawn.choice([None, "a", "b", "c", "d"]),
                drawn.choice([None, *([drawn.randrange(6), drawn.randrange(15)] for _ in range(5))]),
                drawn.randrange(100),
                (("h", b"1"),) if drawn.random() < 0.3 else (),
            )
            for _ in range(200)
        ]
    }
    some = TaskSettings(on_processing_error="skip")
    for sub in topology.sub_topologies:
        assert not [unit for unit in block_plan(topology, sub).units if unit.is_island]
        (node,) = sub.inputs
        name = node.name if isinstance(node.operator, Repartition) else "in"
        # A repartition refuses records without a key, but the operator is asked first.
        fed = [Fed(node.name, record) for record in inputs[name]]
        if isinstance(node.operator, Repartition):
            fed.insert(3, Fed(node.name, Record(None, Change(1), 5)))
        cut = drawn.randrange(1, len(fed))
        expected, found = run_both(topology, sub, [[fed[:cut], fed[cut:]]], some)
        assert (found.left, found.dropped, found.kept) == (expected.left, expected.dropped, expected.kept)
        assert sum(expected.dropped.values()) > 0
        assert sum(map(len, found.left.values())) > 20
        for to, left in expected.left.items():
            inputs[to.removeprefix("/")] = [
                Record(key, value, timestamp, headers) for _, key, value, timestamp, headers in left
            ]
