"""The results of a partition log's operations."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass, field

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


@dataclass(slots=True, kw_only=True)
class Syncs:
    """The syncs of one log run one at a time, and none succeeds after a failed one.

    The system tells of a failed write once for each open file. Of two syncs side by side, only one would get the error.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    failed: str = ""
    """Why one did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """Files to sync. `run` may be called in any thread; then hand `end_offset` to `PartitionLog.flushed`."""

    handles: tuple[FileHandle, ...]
    end_offset: int
    syncs: Syncs

    def run(self) -> None:
        """Raises OSError."""
        with self.syncs.lock:
            if self.syncs.failed:
                raise OSError(errno.EIO, f"another sync failed: {self.syncs.failed}")
            try:
                for handle in self.handles:
                    os.fsync(handle)
            except OSError as error:
                self.syncs.failed = str(error)
                raise
