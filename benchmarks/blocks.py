"""What a block form of an operator gains: the operator over blocks against record by record, without Spark and log.

    python benchmarks/blocks.py [PROGRAM ...]

A task takes 100,000 records with 2,000 keys in blocks of 1,024. For joins half of them are of each side; `table-5` has
one row of the table for 19 records of the stream. The figures are µs of processor time for a record of the whole
sub-topology, the best of five runs; both ways take turns.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

from suiro.streams import (
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)
from suiro.streams.blocks import BlockPlan, BlockTask, Parcel, Taken
from suiro.streams.blocks.plan import plan_of
from suiro.streams.blocks.steps import has_step
from suiro.streams.call_loop import Calls
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Origin
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.task import TIMES
from suiro.streams.topology.nodes import (
    Node,
    SessionAggregate,
    SlidingAggregate,
    StreamStreamJoin,
    StreamTableJoin,
    Suppress,
    TableTableJoin,
)
from suiro.streams.topology.topology import SubTopology, Topology

RECORDS, BLOCK, KEYS, ROUNDS = 100_000, 1_024, 2_000, 5
RECORDS_EACH_MS = 20
JSON: dict[str, Any] = {"key": serdes.string, "value": serdes.json}
COMPARED = (SessionAggregate, SlidingAggregate, StreamStreamJoin, StreamTableJoin, Suppress, TableTableJoin)


def stream_table(builder: StreamsBuilder) -> Any:
    table = builder.table("right", **JSON, materialized=Materialized.as_("rows"))
    return builder.stream("left", **JSON).left_join(table, lambda left, row: [left["n"], row and row["n"]])


def table_table(builder: StreamsBuilder) -> Any:
    left, right = (builder.table(name, **JSON) for name in ("left", "right"))
    return left.join(right, lambda left, right: [left["n"], right["n"]]).to_stream()


def stream_stream(builder: StreamsBuilder) -> Any:
    left, right = (builder.stream(name, **JSON) for name in ("left", "right"))
    windows = JoinWindows.of_time_difference(50, grace=10)
    return left.join(right, lambda left, right: [left["n"], right["n"]], windows, **JSON, other_value=serdes.json)


def stream_stream_left(builder: StreamsBuilder) -> Any:
    left, right = (builder.stream(name, **JSON) for name in ("left", "right"))
    windows = JoinWindows.of_time_difference(50, grace=10)
    return left.left_join(
        right, lambda left, right: [left["n"], right and right["n"]], windows, **JSON, other_value=serdes.json
    )


def session(builder: StreamsBuilder) -> Any:
    """About 35 records each."""
    windows = SessionWindows.of_gap(200, grace=100)
    grouped = builder.stream("left", **JSON).group_by_key(**JSON)
    return _unwindowed(grouped.windowed_by(windows).count().to_stream())


def sliding(builder: StreamsBuilder) -> Any:
    windows = SlidingWindows.of_difference(200, grace=10)
    grouped = builder.stream("left", **JSON).group_by_key(**JSON)
    return _unwindowed(grouped.windowed_by(windows).count().to_stream())


def suppress(builder: StreamsBuilder) -> Any:
    windows = TimeWindows.of_size(500).grace(10)
    grouped = builder.stream("left", **JSON).group_by_key(**JSON)
    counts = grouped.windowed_by(windows).count(materialized=Materialized.as_("counts"))
    return _unwindowed(counts.suppress(Suppressed.until_window_closes()).to_stream())


def _unwindowed(stream: Any) -> Any:
    return stream.map(lambda key, value: (key.key, value))


PROGRAMS: dict[str, tuple[Callable[[StreamsBuilder], Any], float]] = {
    "stream-table": (stream_table, 0.5),
    "stream-table-5": (stream_table, 0.05),
    "stream-stream": (stream_stream, 0.5),
    "stream-stream-left": (stream_stream_left, 0.5),
    "table-table": (table_table, 0.5),
    "session": (session, 0.0),
    "sliding": (sliding, 0.0),
    "suppress": (suppress, 0.0),
}
"""And the share of records of the right side."""


class Counted:
    """`BlockOutputs`."""

    def __init__(self) -> None:
        self.records = 0

    def sink(self, node: Node, block: Any, failed: Any) -> list[Parcel]:
        self.records += len(block)
        return []

    def repartition(self, node: Node, block: Any, failed: Any) -> None:
        raise AssertionError("there is one sub-topology")

    def letter(self, topic: str, record: Any, origin: Any, error: Exception) -> Parcel:
        raise error

    def send(self, parcel: Parcel) -> None: ...


def blocks_of(sub: SubTopology, share: float) -> list[Taken]:
    names = {topic: node.name for node in sub.inputs for topic in node.operator.topics}  # type: ignore[union-attr]
    chance = random.Random(1)
    found = []
    for start in range(0, RECORDS, BLOCK):
        numbers = range(start, min(start + BLOCK, RECORDS))
        inputs = [names["right" if chance.random() < share else "left"] for _ in numbers]
        taken = Taken(
            inputs=inputs[0] if len(set(inputs)) == 1 else inputs,
            keys=[f"key-{chance.randrange(KEYS)}" for _ in numbers],
            values=[{"n": number, "name": "abc", "x": 1.5} for number in numbers],
            timestamps=[number // RECORDS_EACH_MS for number in numbers],
            origin=lambda row: Origin("left", 0, 0, 0),
        )
        found.append(taken)
    return found


def run(topology: Topology, sub: SubTopology, plan: BlockPlan, share: float) -> tuple[float, int]:
    """Seconds, and the number of results."""
    maps = {name: OrderedMap() for name in (TIMES, *(spec.name for spec in sub.stores))}
    outputs = Counted()
    task = BlockTask(
        topology,
        sub,
        plan,
        partition=0,
        maps=maps,
        outputs=outputs,
        settings=TaskSettings(),
        opened_stores={spec.name: open_store(spec, maps[spec.name], keeps=True) for spec in sub.stores},
        caller=Calls(),
    )
    blocks = blocks_of(sub, share)
    start = time.process_time()
    for block in blocks:
        task.process_block(block)
    task.end_of_batch()
    for rows in maps.values():
        rows.take_changes()
    return time.process_time() - start, outputs.records


def measure(name: str) -> None:
    program, share = PROGRAMS[name]
    builder = StreamsBuilder()
    program(builder).map_values(lambda value: value).to("out", **JSON)
    topology = builder.build()
    (sub,) = topology.sub_topologies

    def by_record(node: Node, has_several_ports: bool) -> bool:
        return not isinstance(node.operator, COMPARED) and has_step(topology, node, has_several_ports)

    plans = (
        plan_of(topology, sub, by_record),
        plan_of(topology, sub, lambda node, has_several_ports: has_step(topology, node, has_several_ports)),
    )
    rounds = [[run(topology, sub, plan, share) for plan in plans] for _ in range(ROUNDS)]
    record, block = (min(results[way][0] for results in rounds) / RECORDS * 1e6 for way in (0, 1))
    results = {found for each in rounds for _, found in each}
    assert len(results) == 1, f"{name}: {results} results"
    islands = "; ".join(unit.why for unit in plans[1].units if unit.is_island)
    print(
        f"{name:20} {record:7.2f} by record {block:7.2f} over blocks {record / block:5.2f} x "
        f"{results.pop():8,} results {islands}"
    )


if __name__ == "__main__":
    for chosen in sys.argv[1:] or PROGRAMS:
        measure(chosen)
