"""Runs the nodes after a stateful operator, up to the sinks: on columns, or by the rules if that is not possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Record, Windowed
from suiro.streams.serdes import TimeWindowedSerde, natural
from suiro.streams.topology.nodes import Node, Repartition, Sink
from suiro.streams.topology.topology import Topology
from suiro.streams.vectorised.by_rules import Failures, RulePath, add_counts
from suiro.streams.vectorised.columns import Chunk, Column, headers_array, headers_of
from suiro.streams.vectorised.emission import Emission, emissions
from suiro.streams.vectorised.stateless import FALLBACK, Chain


class Suffix:
    """`chain`: the nodes. Its methods count in `dropped` the records that are left out on the way."""

    def __init__(self, topology: Topology, chain: Chain, settings: TaskSettings) -> None:
        self.chain = chain
        self._topology = topology
        self._settings = settings

    def leave(self, chunk: Chunk, partition: int, failures: Failures, dropped: dict[str, int]) -> list[Emission]:
        """Runs the records to the exits, and returns what leaves there."""
        try:
            return emissions(self._topology, self.chain.run(chunk))
        except FALLBACK:
            return self.leave_by_rules(chunk, chunk.value.values.to_pylist(), partition, failures, dropped)

    def leave_by_rules(
        self,
        chunk: Chunk,
        values: Sequence[Any],
        partition: int,
        failures: Failures,
        dropped: dict[str, int],
    ) -> list[Emission]:
        """Does the same record by record. `values` take the place of the chunk's."""
        topology = self._topology
        path = RulePath(topology, self.chain, settings=self._settings, partition=partition, failures=failures)
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
        add_counts(dropped, path.dropped)
        add_counts(dropped, left_out)
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
