"""The input of one source task in a micro-batch: ranges of topic partitions."""

from __future__ import annotations

from dataclasses import dataclass

from suiro.spark import OffsetRange
from suiro.streams_spark.shuffle_message import InputPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRange:
    """The range to read of one topic partition. `tells`: the partition is behind now or was before, so its task must
    hear of it. `paused`: see `shuffle_message`; the range of such a partition may be empty."""

    records: OffsetRange
    behind: bool = False
    tells: bool = False
    paused: int | None = None

    @property
    def input_partition(self) -> InputPartition:
        return InputPartition(self.records.topic, self.records.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of one source task. `ticks`: it sends the clock to the tasks that wait for it. `rewrites`: it has all
    tasks write their whole changelogs. `replayed`: the micro-batch only rebuilds state."""

    input_partitions: tuple[InputRange, ...]
    clock: int | None = None
    ticks: bool = False
    replayed: bool = False
    rewrites: bool = False
