"""How far a log is synced to disk, and when it is due again (`flush.messages`, `flush.ms`)."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from suiro.clock import Clock
from suiro.log.config import LogConfig
from suiro.log.errors import StorageError
from suiro.log.files import open_directory
from suiro.log.results import FlushJob
from suiro.log.segments import Segments


class FlushedLog(Protocol):
    """The log that is synced."""

    directory: Path
    config: LogConfig
    log_end_offset: int

    @property
    def kept_segments(self) -> Segments: ...


class Flushing:
    """`recovery_point`: every offset below it is on the disk."""

    def __init__(self, log: FlushedLog, *, clock: Clock, recovery_point: int) -> None:
        self._log = log
        self._clock = clock
        self._records = 0
        self._flushed_ms = clock.monotonic_ms()
        self.recovery_point = recovery_point

    def written(self, records: int) -> bool:
        """Count appended records. Returns whether they have to be synced now."""
        self._records += records
        return self._records >= self._log.config.flush_messages

    def is_due(self, now_ms: int) -> bool:
        log = self._log
        return self.recovery_point < log.log_end_offset and now_ms - self._flushed_ms >= log.config.flush_ms

    def job(self) -> FlushJob:
        self._records = 0
        self._flushed_ms = self._clock.monotonic_ms()
        handles, left = self._log.kept_segments.handles_to_sync(self.recovery_point)
        handles.append(open_directory(self._log.directory))
        return FlushJob(handles=tuple(handles), end_offset=self._log.log_end_offset if left is None else left)

    def flushed(self, end_offset: int) -> None:
        """Everything before this offset is on the disk, or is no longer in the log."""
        self.recovery_point = max(self.recovery_point, end_offset)

    def sync(self) -> None:
        """Raises StorageError."""
        synced = -1
        while synced < self._log.log_end_offset:
            try:
                job = self.job()
                job.run()
            except OSError as error:
                raise StorageError(f"cannot sync {self._log.directory}: {error.strerror}") from error
            synced = job.end_offset
            self.flushed(synced)
