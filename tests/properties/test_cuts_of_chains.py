"""Chains of operators give the same for every cut of their input into micro-batches, and after any restart."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
from support.kafka_streams_chains import Drawn, drawn, topology_of
from support.share import examples

from suiro.protocol.murmur2 import partition_for_key
from suiro.streams import serdes
from suiro.streams.errors import TopologyError
from suiro.streams.operators.context import TaskSettings
from suiro.streams.topology.nodes import ForeignKeySubscribe, GlobalTableSource, Source
from suiro.streams.topology.topology import SubTopology, Topology
from suiro.streams_spark.state_log import StateCache
from tests.unit.streams_spark.test_column_task import PARTITIONS, Batch, Engine, Log

Place = tuple[str, int]
Raw = tuple[bytes | None, bytes | None, int]


class OfBytes(Engine):
    """Its rows are bytes, and every update of a table is sent."""

    def __init__(self, topology: Topology, run: str) -> None:
        super().__init__(topology, run)
        self.program = replace(self.program, run=f"{run} bytes", settings=TaskSettings())
        self.log = Log(self.program)

    def _columns(self, records: list[Any]) -> pa.RecordBatch:
        columns = super()._columns([(None, None, timestamp) for _, _, timestamp in records])
        for place in range(2):
            found = pa.array([record[place] for record in records], pa.binary())
            columns = columns.set_column(place, ("key", "value")[place], found)
        return columns


def test_the_cut_does_not_matter_to_a_chain() -> None:
    full, count = 0, examples(120)
    for seed in range(count):
        case, random = drawn(seed), Random(seed)
        try:
            topology = topology_of(case)
            if not all(map(_has_one_order, topology.sub_topologies)):
                continue
            whole = _outputs(topology, case, [len(case.records)], f"{seed} whole")
        except TopologyError:
            continue
        for number in range(2):
            cuts = [*random.choices([0, 1, 1, 2, 3], k=5), 1]
            found = _outputs(topology, case, cuts, f"{seed} {number}")
            assert found == whole, f"seed {seed}: {case} {cuts}"
        full += bool(whole)
    assert full >= count // 3


def _has_one_order(sub: SubTopology) -> bool:
    """Whether it needs no order of several topics that nothing gives, and no table that another task has."""
    operators = [node.operator for node in sub.nodes]
    topics = [topic for node in sub.inputs if isinstance(node.operator, Source) for topic in node.operator.topics]
    return (sub.is_stateful or len(topics) < 2) and not (
        sub.global_tables or any(isinstance(each, GlobalTableSource | ForeignKeySubscribe) for each in operators)
    )


def _outputs(topology: Topology, case: Drawn, cuts: list[int], run: str) -> dict[Any, list[Any]]:
    """The results of each key. Those of different tasks have no order."""
    logs: dict[Place, list[Raw]] = {
        (topic, partition): [] for topic in topology.source_topics for partition in range(PARTITIONS)
    }
    for topic, key, value, timestamp in case.records:
        raw = None if key is None else key.encode()
        partition = timestamp % PARTITIONS if raw is None else partition_for_key(raw, PARTITIONS)
        data = None if value is None else serdes.json.serialize(topic, value)
        logs[topic, partition].append((raw, data, timestamp))
    engine = OfBytes(topology, run)
    found: dict[Any, list[Any]] = defaultdict(list)
    turn = 0
    while any(logs.values()):
        batch: Batch = {}
        for place, rows in logs.items():
            count = cuts[(turn + sum(map(ord, str(place)))) % len(cuts)]
            logs[place] = rows[count:]
            if rows:
                batch[place] = rows[:count], len(rows) > count  # type: ignore[assignment]
        for topic, key, value, timestamp, _ in engine.batch(batch, 10):
            if topic.startswith("out"):
                found[topic, key].append((value or b"", timestamp))
        engine.cache = StateCache()
        turn += 1
    return {place: sorted(rows) for place, rows in found.items()}
