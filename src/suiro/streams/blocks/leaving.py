"""The output of a task that runs over blocks, in the form that its runner takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from suiro.streams.blocks.block import Block
from suiro.streams.records import Headers, Origin, Record
from suiro.streams.topology.nodes import Node


@dataclass(slots=True, kw_only=True)
class Parcel:
    """Encoded records for one topic, in their order. `headers`, `partitions`: None where no record has any, or all go
    where their keys belong; so does a record whose partition is None. `rows`: those of the block that they are; None:
    all."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None = None
    partitions: Sequence[int | None] | None = None
    rows: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.keys)


class BlockOutputs(Protocol):
    """`failed(row, error)`: is told of each row that cannot be encoded; it is left out, unless that raises."""

    def sink(self, node: Node, block: Block, failed: Callable[[int, Exception], None]) -> list[Parcel]:
        """Encodes at once: what is in the block may be changed by those that come after."""
        ...

    def repartition(self, node: Node, block: Block, failed: Callable[[int, Exception], None]) -> None: ...

    def letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> Parcel:
        """A dead letter."""
        ...

    def send(self, parcel: Parcel) -> None: ...


def merged_parcels(parcels: Sequence[Parcel], rows: Sequence[tuple[int, int]]) -> Parcel:
    """Of parcels of one topic. `rows`: which parcel, and which of its records, one after the other."""
    has_headers = any(parcel.headers is not None for parcel in parcels)
    has_partitions = any(parcel.partitions is not None for parcel in parcels)
    pairs = [(parcels[index], row) for index, row in rows]
    return Parcel(
        topic=parcels[0].topic,
        keys=[parcel.keys[row] for parcel, row in pairs],
        values=[parcel.values[row] for parcel, row in pairs],
        timestamps=[parcel.timestamps[row] for parcel, row in pairs],
        headers=[() if parcel.headers is None else parcel.headers[row] for parcel, row in pairs]
        if has_headers
        else None,
        partitions=[None if parcel.partitions is None else parcel.partitions[row] for parcel, row in pairs]
        if has_partitions
        else None,
    )
