"""The output of a sub-topology as columns: serialized records for a `Sink` or a `Repartition`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suiro.streams.serdes import TimeWindowedSerde
from suiro.streams.topology.nodes import Node, Repartition, Sink
from suiro.streams.topology.topology import Topology
from suiro.streams.vectorised import kernels
from suiro.streams.vectorised.columns import Chunk
from suiro.streams.vectorised.key_index import BinaryView, binary_array, read_only


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
        partition_keys=without_tail(keys, 8) if isinstance(operator.key, TimeWindowedSerde) else None,
        null_keys=null_keys,
    )


def is_for_us(operator: Any) -> TypeGuard[Repartition]:
    """Tells whether only our own tasks read the records, so that JSON need not be written again."""
    return isinstance(operator, Repartition) and not operator.asked_for


def without_tail(column: pa.Array, tail: int) -> pa.Array:
    """Returns a binary column without nulls, with each row shorter by so many bytes."""
    view = BinaryView.of(column)
    offsets = np.zeros(len(column) + 1, np.int32)
    size = int(view.offsets[-1]) - int(view.offsets[0])
    out = np.empty(size, np.uint8)
    kernels.cut_tails(view.offsets, view.data, tail, offsets, out)
    return binary_array(offsets, out)


def changelog_columns(keys: pa.Array, rows: pa.Array, now: int) -> tuple[pa.Array, pa.Array, npt.NDArray[np.int64]]:
    """Returns changed rows of a store as its changelog gets them: keys, values without the timestamp in front, and that
    timestamp. Deletions have the time `now`."""
    view = BinaryView.of(rows)
    starts = view.offsets[:-1].astype(np.int64)
    sizes = np.diff(view.offsets).astype(np.int64)
    if view.has_nulls:
        sizes[~rows.is_valid().to_numpy(zero_copy_only=False)] = -1
    timestamps = np.full(len(rows), max(now, 0), np.int64)
    kernels.read_timestamps(view.data, read_only(starts), read_only(sizes), timestamps)
    offsets = np.zeros(len(rows) + 1, np.int32)
    out = np.empty(kernels.measure_rows(read_only(sizes), 8, offsets), np.uint8)
    bitmap = np.zeros((len(rows) + 7) // 8, np.uint8)
    nulls = kernels.gather_rows(view.data, read_only(starts), read_only(sizes), 8, offsets, out, bitmap)
    return keys, binary_array(offsets, out, bitmap, nulls), np.maximum(timestamps, 0)
