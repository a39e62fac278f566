"""The output of a sub-topology as columns: serialized records for a `Sink` or a `Repartition`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from suiro.streams.serdes import TimeWindowedSerde
from suiro.streams.topology.nodes import Node, Repartition, Sink
from suiro.streams.topology.topology import Topology
from suiro.streams.vectorised.columns import Chunk
from suiro.streams.vectorised.key_index import BinaryView, gathered, int64s

_STAMPED_KINDS = ("key-value", "window", "global")
_TIME_IN_KEY = {"session": (-16, -8), "versioned": (-8, None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """Records for one node, in order. `partition_keys`: the bytes that choose the partition, if these are not the key
    (all windows of a key go to one partition). `null_keys`: how many records were left out because they have no key."""

    node: Node
    keys: pa.Array
    values: pa.Array
    timestamps: npt.NDArray[np.int64]
    headers: pa.Array | None = None
    partition_keys: pa.Array | None = None
    null_keys: int = 0

    def __len__(self) -> int:
        return len(self.timestamps)


def emissions(topology: Topology, arrived: Mapping[str, Chunk]) -> list[Emission]:
    """Returns the records that arrived at sinks and repartitions, as bytes. Raises one of `FALLBACK`."""
    return [_emission(topology.node(name), chunk) for name, chunk in arrived.items()]


def _emission(node: Node, chunk: Chunk) -> Emission:
    operator = node.operator
    assert isinstance(operator, Sink | Repartition)
    null_keys = 0
    if isinstance(operator, Repartition) and not operator.keeps_null_keys:
        null_keys = chunk.key.null_count
        chunk = chunk.filter(chunk.key.valid()) if null_keys else chunk
    topic = operator.topic
    assert isinstance(topic, str)
    keys = chunk.key.bytes_for(operator.key, topic)
    if is_for_us(operator):
        values = chunk.value.readable_by(operator.value, topic)
    else:
        values = chunk.value.bytes_for(operator.value, topic)
    return Emission(
        node=node,
        keys=keys,
        values=values,
        timestamps=chunk.timestamps,
        headers=chunk.headers,
        partition_keys=pc.binary_slice(keys, 0, -8) if isinstance(operator.key, TimeWindowedSerde) else None,
        null_keys=null_keys,
    )


def is_for_us(operator: Any) -> TypeGuard[Repartition]:
    """Tells whether only our own tasks read the records, so that JSON need not be written again."""
    return isinstance(operator, Repartition) and not operator.asked_for


def changelog_columns(kind: str, keys: pa.Array, rows: pa.Array, now: int) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Returns changed rows of a kind of store as its changelog gets them: values without the timestamp in front, and
    that timestamp, or the one in the key. Other rows and deletions have the time `now`."""
    valid = rows.is_valid().to_numpy(zero_copy_only=False)
    if kind in _STAMPED_KINDS:
        timestamps = int64s(rows.fill_null(bytes(8)), 0, 8)
        view = BinaryView.of(rows)
        starts = view.offsets.astype(np.int64)
        sizes = np.where(valid, np.diff(starts) - 8, -1)
        rows = gathered(view.data, starts[:-1] + 8, sizes, what="rows")
    elif kind in _TIME_IN_KEY:
        timestamps = int64s(keys, *_TIME_IN_KEY[kind])
    else:
        return rows, np.full(len(rows), max(now, 0), np.int64)
    return rows, np.maximum(np.where(valid, timestamps, now), 0)
