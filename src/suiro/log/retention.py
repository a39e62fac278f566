"""Retention: the rule for the oldest segments of a log that may be deleted, and their deletion.

The functions are pure. All methods are called on the thread of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from suiro.clock import Clock
from suiro.log import producer_snapshot
from suiro.log.errors import OffsetOutOfRangeError, StorageError
from suiro.log.leader_epochs import LeaderEpochs
from suiro.log.log_cleaning import CleanableLog, LogCleaning
from suiro.log.segment import Segment
from suiro.log.segments import SegmentFacts
from suiro.log.swap import DeletedFiles


class RetainedLog(CleanableLog, Protocol):
    """The log whose segments are deleted. Some are cleaned before that."""

    cleaning: LogCleaning
    leader_epochs: LeaderEpochs
    tiered_end_offset: int
    offline: str | None

    def roll(self) -> Segment: ...
    def flushed(self, end_offset: int) -> None: ...


class LogRetention:
    def __init__(self, log: RetainedLog, *, clock: Clock, deleted_files: DeletedFiles) -> None:
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
