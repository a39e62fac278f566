"""Runs a part of a topology by the rules, for chunks that columnar operators cannot process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Origin, Record, Windowed
from suiro.streams.serdes import TimeWindowedSerde, natural
from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES, Task
from suiro.streams.topology.nodes import Node, Repartition, Sink, Source
from suiro.streams.topology.topology import SubTopology, Topology
from suiro.streams.vectorised.columns import Chunk, Column, headers_array, headers_of
from suiro.streams.vectorised.emission import Emission, emissions
from suiro.streams.vectorised.stateless import FALLBACK, Chain


@dataclass(frozen=True, slots=True)
class ColumnContext:
    """A columnar operator's view of its task. `dead_letter` takes a record that failed: the topic of dead letters, the
    record, its origin, the error. `dropped`: the records that are left out, by reason."""

    partition: int
    dead_letter: Callable[[str, Record, Origin | None, Exception], None]
    dropped: dict[str, int]

    def drop(self, counts: Mapping[str, int]) -> None:
        for reason, count in counts.items():
            if count:
                self.dropped[reason] = self.dropped.get(reason, 0) + count


class RulePath:
    """Runs a `Chain` record by record. It does not run the exits; it returns the records that arrive at them."""

    def __init__(self, topology: Topology, chain: Chain, settings: TaskSettings, context: ColumnContext) -> None:
        self.dead_letter = context.dead_letter
        self._each: Callable[[str, Record], None] = lambda name, record: None
        start = chain.start
        if not isinstance(start.operator, Source | Repartition):
            start = replace(start, operator=Source(topics=(), key=natural, value=natural), parents=())
        nodes = tuple(_ending(node) if node.name in chain.exits else node for node in chain.nodes)
        sub = SubTopology(number=0, nodes=(start, *nodes), inputs=(start,), outputs=(), stores=())
        if isinstance(start.operator, Repartition):
            sub = replace(sub, nodes=nodes)
        self._start = start.name
        self._task = Task(
            Topology(nodes=(start, *nodes)),
            sub,
            partition=context.partition,
            maps={TIMES: OrderedMap()},
            outputs=self,
            settings=replace(settings, coalesces=False),
        )

    @property
    def dropped(self) -> dict[str, int]:
        return self._task.dropped

    def run(self, records: Iterable[tuple[Record, Origin | None]], each: Callable[[str, Record], None]) -> None:
        """Calls `each(exit, record)` for each record that arrives at an exit. If the call fails, the record has failed
        at the exit."""
        self._each = each
        for record, origin in records:
            self._task.process(self._start, record, origin)

    def emit(self, node: Node, record: Record) -> None:
        self._each(node.name, record)


def _ending(node: Node) -> Node:
    if isinstance(node.operator, Sink | Repartition):
        return node
    return replace(node, operator=Sink(topic=""))


class Suffix:
    """Runs the nodes after a stateful operator, up to the sinks: on columns, or by the rules if that is not possible.

    `chain`: the nodes."""

    def __init__(self, topology: Topology, chain: Chain, settings: TaskSettings) -> None:
        self.chain = chain
        self._topology = topology
        self._settings = settings

    def leave(self, chunk: Chunk, context: ColumnContext) -> list[Emission]:
        """Runs the records to the exits, and returns what leaves there."""
        try:
            return emissions(self._topology, self.chain.run(chunk))
        except FALLBACK:
            return self.leave_by_rules(chunk, chunk.value.values.to_pylist(), context)

    def leave_by_rules(self, chunk: Chunk, values: Sequence[Any], context: ColumnContext) -> list[Emission]:
        """Does the same record by record. `values` take the place of the chunk's."""
        topology = self._topology
        path = RulePath(topology, self.chain, self._settings, context)
        found: dict[str, list[_Written]] = {}
        left_out: Counter[str] = Counter()
        rows = zip(
            _listed(chunk.key),
            values,
            chunk.timestamps.tolist(),
            headers_of(chunk.headers) or [()] * len(chunk),
            strict=True,
        )

        def arrive(name: str, record: Record) -> None:
            operator = topology.node(name).operator
            assert isinstance(operator, Sink | Repartition)
            if record.key is None and isinstance(operator, Repartition) and not operator.keeps_null_keys:
                left_out["null key"] += 1
                return
            found.setdefault(name, []).append(_written(operator, record))

        path.run(((Record(*row), None) for row in rows), arrive)
        context.drop(path.dropped)
        context.drop(left_out)
        return [_emission(topology.node(name), records) for name, records in found.items()]


def _listed(keys: Column) -> list[Any]:
    serde = keys.serde
    if isinstance(serde, TimeWindowedSerde):
        raw = keys.bytes_for(serde, keys.topic).to_pylist()
        return [serde.deserialize(keys.topic, key) for key in raw]
    found: list[Any] = keys.values.to_pylist()
    return found


_Written = tuple[Record, bytes | None, bytes | None, bytes | None]
"""A record, its key and value as bytes, and of a windowed key those that choose its partition."""


def _written(operator: Sink | Repartition, record: Record) -> _Written:
    assert isinstance(operator.topic, str)
    topic, key, value = operator.topic, record.key, record.value
    key_serde, value_serde = operator.key or natural, operator.value or natural
    inner = getattr(key_serde, "inner", None)
    return (
        record,
        None if key is None else key_serde.serialize(topic, key),
        None if value is None else value_serde.serialize(topic, value),
        inner.serialize(topic, key.key) if inner is not None and isinstance(key, Windowed) else None,
    )


def _emission(node: Node, written: list[_Written]) -> Emission:
    records, keys, values, partition_keys = zip(*written, strict=True)
    return Emission(
        node=node,
        keys=pa.array(keys, pa.binary()),
        values=pa.array(values, pa.binary()),
        timestamps=np.array([record.timestamp for record in records], np.int64),
        headers=headers_array([record.headers for record in records]),
        partition_keys=None if None in partition_keys else pa.array(partition_keys, pa.binary()),
    )
