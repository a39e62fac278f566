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
    """Encoded records for one topic, in their order. `headers`: None if no record has any. `partitions`: None if the
    key chooses each partition; a record whose partition is None goes by its key too. `rows`: the rows of the block that
    the records come from; None: all."""

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
    """`failed(row, error)` is called for each row that cannot be encoded. The row is left out unless the call
    raises."""

    def sink(self, node: Node, block: Block, failed: Callable[[int, Exception], None]) -> list[Parcel]:
        """Encodes at once, because later operators may change the values of the block."""
        ...

    def repartition(self, node: Node, block: Block, failed: Callable[[int, Exception], None]) -> None: ...

    def letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> Parcel:
        """Returns a dead letter for a record that failed."""
        ...

    def send(self, parcel: Parcel) -> None: ...


def merged_parcels(parcels: Sequence[Parcel], rows: Sequence[tuple[int, int]]) -> Parcel:
    """Returns one parcel for one topic. `rows`: for each record, which parcel it is in and which of its records it
    is."""
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
