"""The input of one source task in a micro-batch: ranges of topic partitions."""

from __future__ import annotations

from dataclasses import dataclass

from suiro.spark import OffsetRange
from suiro.streams_spark.shuffle_message import InputPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRange:
    """What to read of one topic partition. `tells`: it is behind now or was before, so its task must hear of it.
    `paused`: see `shuffle_message`; such an input partition may have nothing to read, and only tells."""

    records: OffsetRange
    behind: bool = False
    tells: bool = False
    paused: int | None = None

    @property
    def input_partition(self) -> InputPartition:
        return InputPartition(self.records.topic, self.records.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One task's. `ticks`: it is also the one to send the clock to the tasks that wait for it, `rewrites`: to have all
    tasks write their whole changelogs. `replayed`: only state is wanted."""

    input_partitions: tuple[InputRange, ...]
    clock: int | None = None
    ticks: bool = False
    replayed: bool = False
    rewrites: bool = False
