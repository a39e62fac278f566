"""The results of a partition log's operations."""

from __future__ import annotations

import os
from dataclasses import dataclass

from suiro.log.files import FileHandle
from suiro.log.segments import Region


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Where an append went. A duplicate was not written again; its offsets are the first writing's."""

    base_offset: int
    last_offset: int
    log_append_time: int  # milliseconds; -1 unless message.timestamp.type is LogAppendTime
    log_start_offset: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """File regions of whole batches. Keep the handle in each region until it is sent; never its `int()`."""

    regions: list[Region]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]  # (producer id, first offset); empty for read_uncommitted


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """Files to sync. `run` may be called in any thread; then hand `end_offset` to `PartitionLog.flushed`."""

    handles: tuple[FileHandle, ...]
    end_offset: int

    def run(self) -> None:
        for handle in self.handles:
            os.fsync(handle)
