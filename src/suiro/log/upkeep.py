"""What a log needs beside appends and reads: segments are replaced by cleaned ones, and old ones are deleted.

All methods are called on the thread of the log. The work between `LogCleaning.begin` and `end` is `cleaning.clean`, in
a process of its own. The rules are pure: of retention at the end of this module, of compaction in `compaction`.
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
from suiro.log.errors import OffsetOutOfRangeError, StorageError
from suiro.log.leader_epochs import LeaderEpochs
from suiro.log.producer_state import ProducerEntry
from suiro.log.segment import Segment
from suiro.log.segments import SegmentFacts, Segments
from suiro.log.swap import DeletedFiles, begin_swap, discard_unfinished, end_swap


class KeptLog(Protocol):
    """The log whose segments are replaced and deleted."""

    directory: Path
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    gaps_below: int
    tiered_end_offset: int
    leader_epochs: LeaderEpochs
    offline: str | None
    cleaning: LogCleaning
    retention: LogRetention

    @property
    def last_stable_offset(self) -> int: ...
    @property
    def kept_segments(self) -> Segments: ...
    def producer_states(self) -> tuple[ProducerEntry, ...]: ...
    def check_open(self) -> None: ...
    def take_offline(self, why: str) -> None: ...
    def roll(self) -> Segment: ...
    def flushed(self, end_offset: int) -> None: ...


class LogCleaning:
    """`begin`, then `replace_segments` for each cleaned group, then `end`."""

    def __init__(self, log: KeptLog, *, clock: Clock, note_gaps: Callable[[], None]) -> None:
        self._log = log
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
                self._log.retention.delete_files(segment)
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


class LogRetention:
    def __init__(self, log: KeptLog, *, clock: Clock, deleted_files: DeletedFiles) -> None:
        self._log = log
        self._clock = clock
        self._deleted_files = deleted_files

    def apply(self, now_ms: int | None = None) -> int:
        """Delete the segments that `retention.*` does not keep. Returns their number.

        For a tiered log `local.retention.*` decide, and only copied segments are deleted; they can still be read.
        """
        log = self._log
        now_ms = self._clock.wall_ms() if now_ms is None else now_ms
        if log.cleaning.is_running or log.offline is not None:
            return 0
        segments, start = log.kept_segments, log.log_start_offset
        tiered = log.config.copies_to_remote
        keep = log.config.local_retention if tiered else log.config.retention
        rebuilt = 1
        while rebuilt:
            facts = segments.facts(log.log_end_offset)
            count = expired_segments(facts, keep=keep, now_ms=now_ms, log_start_offset=start)
            if count == len(segments):
                try:
                    log.roll()
                except StorageError:  # A full disk: the deletion makes room, and the next check rolls.
                    count -= 1
            # A time index may make a segment look older than it is: then it is built again, and all is counted again.
            rebuilt = sum(segment.check_times() for segment in tuple(segments)[:count])
        if tiered:
            count = removable(facts, count, safe_offset=max(log.tiered_end_offset, start))
        self.delete_oldest(count)
        return count

    def delete_records_before(self, offset: int) -> int:
        """Move the log's start (-1: to the high watermark) and delete the segments before it. Returns the start.

        Raises LogError.
        """
        log = self._log
        log.check_open()
        offset = log.log_end_offset if offset == -1 else offset
        if not 0 <= offset <= log.log_end_offset:
            raise OffsetOutOfRangeError(f"cannot delete before {offset}: the log ends at {log.log_end_offset}")
        if offset > log.log_start_offset:
            self.start_at(offset)
            self.delete_oldest(len(log.kept_segments) - len(log.kept_segments.from_offset(offset)))
        return log.log_start_offset

    def delete_oldest(self, count: int) -> None:
        """Delete the oldest segments. Raises StorageError after forgetting those that were deleted before it."""
        log = self._log
        if count == 0 or log.cleaning.is_running:
            return  # A cleaning needs its files. The next check deletes them.
        try:
            log.kept_segments.drop_oldest(count, self.delete_files)
        except OSError as error:
            raise StorageError(f"cannot delete segments of {log.directory}: {error.strerror}") from error
        finally:
            self._begin_at_first_segment()

    def _begin_at_first_segment(self) -> None:
        log = self._log
        first = log.kept_segments.first_base
        log.flushed(first)
        # If segments are not copied any more, the deleted records may not be in the tier: the log begins behind them.
        in_tier = log.config.remote_storage_enable and first <= log.tiered_end_offset
        if first > log.log_start_offset and not in_tier:
            self.start_at(first)
        producer_snapshot.remove(log.directory, keep=log.kept_segments.bases)

    def delete_files(self, segment: Segment) -> None:
        due_ms = self._clock.monotonic_ms() + self._log.config.file_delete_delay_ms
        self._deleted_files.delete_segment(segment.path, due_ms=due_ms)

    def start_at(self, offset: int) -> None:
        self._log.log_start_offset = offset
        self._log.flushed(offset)
        self._log.leader_epochs.cut_start(offset)


def expired_segments(
    segments: Sequence[SegmentFacts], *, keep: tuple[int, int], now_ms: int, log_start_offset: int
) -> int:
    """Returns how many segments from the oldest on may be deleted now. All of them means that the active one must be
    rolled.

    A segment goes when all its records are before the log's start, when its latest record is older than `keep[0]`
    milliseconds, or when the log without it still holds `keep[1]` bytes. -1 means no limit.
    """
    count = 0
    # The last segment is never deleted for lying before the log's start: appends go on in it.
    while count < len(segments) - 1 and segments[count].end_offset <= log_start_offset:
        count += 1
    keep_ms, keep_bytes = keep
    excess = sum(segment.size for segment in segments[count:]) - keep_bytes
    for number, segment in enumerate(segments[count:], count):
        too_old = keep_ms >= 0 and now_ms - segment.latest_ms > keep_ms
        too_much = keep_bytes >= 0 and excess >= segment.size
        is_active = number == len(segments) - 1
        if (is_active and segment.size == 0) or not (too_old or too_much):
            break
        excess -= segment.size
        count += 1
    return count


def removable(segments: Sequence[SegmentFacts], count: int, *, safe_offset: int) -> int:
    """Returns how many of the first `count` segments end at or before an offset. The others are only on this disk."""
    while count and segments[count - 1].end_offset > safe_offset:
        count -= 1
    return count
