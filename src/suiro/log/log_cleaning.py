"""Cleaning, on the side of the log: finds the part to clean, and replaces segments by cleaned ones.

All methods are called on the thread of the log. The work between `begin` and `end` is `cleaning.clean`, in a process
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from suiro.clock import Clock
from suiro.config import MAX_LONG
from suiro.log import producer_snapshot
from suiro.log.compaction import CleanerSettings, CleaningJob, CompactionFacts, Dirtiness, SegmentSource
from suiro.log.config import LogConfig
from suiro.log.errors import StorageError
from suiro.log.producer_state import ProducerEntry
from suiro.log.segment import Segment
from suiro.log.segments import Segments
from suiro.log.swap import begin_swap, discard_unfinished, end_swap


class CleanableLog(Protocol):
    """The log that is cleaned."""

    directory: Path
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    gaps_below: int

    @property
    def last_stable_offset(self) -> int: ...
    @property
    def kept_segments(self) -> Segments: ...
    def producer_states(self) -> tuple[ProducerEntry, ...]: ...
    def check_open(self) -> None: ...
    def take_offline(self, why: str) -> None: ...


class LogCleaning:
    """`begin`, then `replace_segments` for each cleaned group, then `end`."""

    def __init__(
        self,
        log: CleanableLog,
        *,
        clock: Clock,
        note_gaps: Callable[[], None],
        delete_files: Callable[[Segment], None],
    ) -> None:
        self._log = log
        self._delete_files = delete_files
        self._clock = clock
        self._note_gaps = note_gaps
        self.is_running = False

    def facts(self) -> CompactionFacts:
        """Returns the state of the log for `compaction.dirtiness`."""
        segments = tuple(self._log.kept_segments)
        timed = self._log.config.max_compaction_lag_ms < MAX_LONG
        return CompactionFacts(
            segments=[(segment.base_offset, segment.size, segment.latest_ms) for segment in segments],
            log_start_offset=self._log.log_start_offset,
            log_end_offset=self._log.log_end_offset,
            last_stable_offset=self._log.last_stable_offset,
            first_batches=[(s.base_offset, s.first_timestamp) for s in segments[:-1]] if timed else (),
        )

    def last_of_producers(self) -> tuple[tuple[int, int, int], ...]:
        """Returns (producer id, offset of its last data or -1, producer epoch) of each producer, which cleaning must
        keep."""
        return tuple(
            (
                entry.producer_id,
                entry.batches[-1].last_offset if entry.batches else -1,
                entry.producer_epoch,
            )
            for entry in self._log.producer_states()
        )

    def begin(self, dirtiness: Dirtiness, settings: CleanerSettings) -> CleaningJob:
        """Returns the job for `cleaning`. No segment is deleted until `end`. Raises StorageError."""
        self._log.check_open()
        segments = tuple(self._log.kept_segments)
        try:
            discard_unfinished(self._log.directory)
            for segment in segments:
                segment.transaction_index.flush()
        except OSError as error:
            raise StorageError(f"cannot prepare a cleaning of {self._log.directory}: {error}") from error
        if dirtiness.first_uncleanable_offset > self._log.gaps_below:
            # This must be on the disk before the first gap, which would be taken for damage after a crash.
            noted, self._log.gaps_below = self._log.gaps_below, dirtiness.first_uncleanable_offset
            try:
                self._note_gaps()
            except OSError as error:
                self._log.gaps_below = noted
                raise StorageError(f"cannot note a cleaning of {self._log.directory}: {error}") from error
        self.is_running = True
        return CleaningJob(
            directory=self._log.directory,
            sources=tuple(
                SegmentSource(
                    base_offset=segment.base_offset,
                    size=segment.size,
                    offset_index_size=segment.offset_index.size,
                    time_index_size=segment.time_index.size,
                )
                for segment in segments
                if segment.base_offset < dirtiness.first_uncleanable_offset
            ),
            first_dirty_offset=dirtiness.first_dirty_offset,
            first_uncleanable_offset=dirtiness.first_uncleanable_offset,
            transaction_indexes=tuple(segment.transaction_index.path for segment in segments),
            last_of_producers=self.last_of_producers(),
            now_ms=self._clock.wall_ms(),
            delete_retention_ms=self._log.config.tombstones_ms,
            segment_bytes=self._log.config.segment_bytes,
            segment_index_bytes=self._log.config.segment_index_bytes,
            index_interval_bytes=self._log.config.index_interval_bytes,
            settings=settings,
            begins_in_tier=self._log.config.remote_storage_enable
            and self._log.log_start_offset < segments[0].base_offset,
        )

    def replace_segments(self, bases: Sequence[int]) -> None:
        """Put the `.cleaned` files of one group in the place of its segments. Raises StorageError."""
        self._log.check_open()
        try:
            begin_swap(self._log.directory, bases[0])
            for segment in self._log.kept_segments.at(bases):
                self._delete_files(segment)
            end_swap(self._log.directory, bases[0])
        except OSError as error:
            # Only the next start can find out which names the files have now.
            self._log.take_offline(str(error))
            raise StorageError(
                f"cannot put cleaned segment {bases[0]} of {self._log.directory} in place: {error}"
            ) from error
        new = Segment(self._log.directory, bases[0], self._log.config, created_ms=self._clock.wall_ms())
        self._log.kept_segments.replace(bases, new)
        producer_snapshot.remove(self._log.directory, keep=self._log.kept_segments.bases)

    def end(self) -> None:
        """The cleaning is done or was given up. Retention may delete segments again."""
        self.is_running = False
