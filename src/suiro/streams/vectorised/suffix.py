"""Runs the nodes after a stateful operator, up to the sinks: on columns, or by the rules if that is not possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Record, Windowed
from suiro.streams.serdes import TimeWindowedSerde, natural
from suiro.streams.topology.nodes import Node, Repartition, Sink
from suiro.streams.topology.topology import Topology
from suiro.streams.vectorised.by_rules import Failures, RulePath, headers_array, headers_of
from suiro.streams.vectorised.columns import Chunk, Column
from suiro.streams.vectorised.emission import Emission, emissions
from suiro.streams.vectorised.stateless import FALLBACK, Chain


def leave(
    topology: Topology,
    suffix: Chain,
    chunk: Chunk,
    settings: TaskSettings,
    partition: int,
    failures: Failures,
) -> list[Emission]:
    """The records go on to the suffix's exits."""
    try:
        return emissions(topology, suffix.run(chunk))
    except FALLBACK:
        values = chunk.value.values.to_pylist()
        return written_by_rules(topology, suffix, chunk, values, settings, partition, failures)


def written_by_rules(
    topology: Topology,
    suffix: Chain,
    chunk: Chunk,
    values: Sequence[Any],
    settings: TaskSettings,
    partition: int,
    failures: Failures,
) -> list[Emission]:
    """The same record by record; `values` take the place of the chunk's."""
    path = RulePath(topology, suffix, settings=settings, partition=partition, failures=failures)
    found: dict[str, list[Record]] = {}
    rows = zip(
        _listed(chunk.key),
        values,
        chunk.timestamps.tolist(),
        headers_of(chunk.headers, len(chunk)),
        strict=True,
    )
    path.run(
        ((Record(*row), None) for row in rows),
        lambda name, record: found.setdefault(name, []).append(record),
    )
    return [_written(topology.node(name), records) for name, records in found.items()]


def _listed(keys: Column) -> list[Any]:
    serde = keys.serde
    if isinstance(serde, TimeWindowedSerde):
        raw = keys.bytes_for(serde, keys.topic).to_pylist()
        return [serde.deserialize(keys.topic, key) for key in raw]
    found: list[Any] = keys.values.to_pylist()
    return found


def _written(node: Node, records: list[Record]) -> Emission:
    operator = node.operator
    assert isinstance(operator, Sink | Repartition)
    assert isinstance(operator.topic, str)
    topic = operator.topic
    if isinstance(operator, Repartition) and not operator.keeps_null_keys:
        records = [record for record in records if record.key is not None]
    key_serde, value_serde = operator.key or natural, operator.value or natural
    keys = [None if r.key is None else key_serde.serialize(topic, r.key) for r in records]
    values = [None if r.value is None else value_serde.serialize(topic, r.value) for r in records]
    inner = getattr(key_serde, "inner", None)
    windowed = [r.key for r in records if isinstance(r.key, Windowed)]
    is_windowed = inner is not None and len(windowed) == len(records)
    return Emission(
        node=node,
        keys=pa.array(keys, pa.binary()),
        values=pa.array(values, pa.binary()),
        timestamps=np.array([r.timestamp for r in records], np.int64),
        headers=headers_array([r.headers for r in records]),
        partition_keys=pa.array([inner.serialize(topic, key.key) for key in windowed], pa.binary())
        if is_windowed and inner is not None
        else None,
    )
