"""How far a log is synced to disk, and when it is due again (`flush.messages`, `flush.ms`)."""

from __future__ import annotations

from pathlib import Path

from suiro.clock import Clock
from suiro.log.config import LogConfig
from suiro.log.errors import StorageError
from suiro.log.files import open_directory
from suiro.log.results import FlushJob
from suiro.log.segments import Segments


class Flushing:
    """`recovery_point`: every offset below it is on the disk."""

    def __init__(self, directory: Path, *, clock: Clock, recovery_point: int) -> None:
        self._directory = directory
        self._clock = clock
        self._records = 0
        self._flushed_ms = clock.wall_ms()
        self.recovery_point = recovery_point

    def written(self, records: int, config: LogConfig) -> bool:
        """Count appended records. Returns whether they have to be synced now."""
        self._records += records
        return self._records >= config.flush_messages

    def is_due(self, config: LogConfig, *, end_offset: int, now_ms: int) -> bool:
        return self.recovery_point < end_offset and now_ms - self._flushed_ms >= config.flush_ms

    def job(self, segments: Segments, *, end_offset: int) -> FlushJob:
        self._records = 0
        self._flushed_ms = self._clock.wall_ms()
        handles, left = segments.handles_to_sync(self.recovery_point)
        handles.append(open_directory(self._directory))
        return FlushJob(handles=tuple(handles), end_offset=end_offset if left is None else left)

    def flushed(self, end_offset: int) -> None:
        """Everything before this offset is on the disk, or is no longer in the log."""
        self.recovery_point = max(self.recovery_point, end_offset)

    def sync(self, segments: Segments, *, end_offset: int) -> None:
        """Raises StorageError."""
        synced = -1
        while synced < end_offset:
            try:
                job = self.job(segments, end_offset=end_offset)
                job.run()
            except OSError as error:
                raise StorageError(f"cannot sync {self._directory}: {error.strerror}") from error
            synced = job.end_offset
            self.flushed(synced)
