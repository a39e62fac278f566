"""One partition's segments in the remote tier: which are live, which are garbage, which have expired. Pure rules.

Always true: no two readable segments overlap. A finished copy replaces every older segment within its offsets (the
segments of a compacted topic are merged and cleaned again). The order of the records in the metadata topic decides
which one is older, so a replay gives the same result after any crash.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from uuid import UUID

from suiro.log.config import LogConfig
from suiro.log.segments import SegmentFacts
from suiro.log.tier.segment_metadata import RemoteSegment, SegmentState


class RemoteLog:
    """Give it every metadata record of the partition, in order."""

    def __init__(self) -> None:
        self._readable: list[RemoteSegment] = []
        self._garbage: dict[UUID, RemoteSegment] = {}
        self._copying: dict[UUID, RemoteSegment] = {}

    def apply(self, segment: RemoteSegment) -> None:
        """Take one record into account."""
        found = segment.segment_id
        self._copying.pop(found, None)
        self._garbage.pop(found, None)
        match segment.state:
            case SegmentState.COPY_STARTED:
                self._copying[found] = segment
            case SegmentState.COPY_FINISHED:
                self._take_over(segment)
            case SegmentState.DELETE_STARTED:
                self._forget(found)
                self._garbage[found] = segment
            case SegmentState.DELETE_FINISHED:
                self._forget(found)

    def abandon_copies(self) -> None:
        """Call this after a replay: copies that were not finished when the process died are garbage."""
        self._garbage |= self._copying
        self._copying.clear()

    @property
    def readable(self) -> Sequence[RemoteSegment]:
        """The whole copies, in order of their offsets."""
        return self._readable

    @property
    def garbage(self) -> Sequence[RemoteSegment]:
        """The segments whose objects are to be removed."""
        return tuple(self._garbage.values())

    @property
    def start_offset(self) -> int | None:
        return self._readable[0].start_offset if self._readable else None

    @property
    def next_offset(self) -> int:
        """The offset behind the last copied one, or 0 if nothing is copied."""
        return self._readable[-1].next_offset if self._readable else 0

    @property
    def leader_epochs(self) -> Sequence[tuple[int, int]]:
        """(epoch, first copied offset), as they rise."""
        first: dict[int, int] = {}
        for segment in self._readable:
            for epoch, offset in segment.leader_epochs:
                first.setdefault(epoch, offset)
        return sorted(first.items())

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._readable)

    def from_offset(self, offset: int) -> Sequence[RemoteSegment]:
        """Returns the segment that holds an offset, or the first behind it, and all later ones."""
        return self._readable[bisect_left(self._readable, offset, key=lambda segment: segment.end_offset) :]

    def expired(
        self, config: LogConfig, *, now_ms: int, log_start_offset: int, local_only: Sequence[SegmentFacts]
    ) -> Sequence[RemoteSegment]:
        """Returns the oldest segments that need not be kept.

        A segment goes when all of it is before the log's start, and, with `cleanup.policy=delete`, when it is older
        than `retention.ms` or the log without it still holds `retention.bytes` (segments not copied yet count, too).
        """
        count = 0
        while count < len(self._readable) and self._readable[count].end_offset < log_start_offset:
            count += 1
        keep_ms, keep_bytes = config.retention
        held = sum(segment.size for segment in self._readable[count:])
        excess = held + sum(facts.size for facts in local_only) - keep_bytes
        for segment in self._readable[count:]:
            too_old = keep_ms >= 0 and segment.max_timestamp <= now_ms - keep_ms
            too_much = keep_bytes >= 0 and excess >= segment.size
            if not (too_old or too_much):
                break
            excess -= segment.size
            count += 1
        return self._readable[:count]

    def _take_over(self, segment: RemoteSegment) -> None:
        kept = []
        for other in self._readable:
            if other.segment_id == segment.segment_id:
                continue
            if segment.start_offset <= other.start_offset and other.end_offset <= segment.end_offset:
                self._garbage[other.segment_id] = other
            else:
                kept.append(other)
        kept.append(segment)
        self._readable = sorted(kept, key=lambda each: each.start_offset)

    def _forget(self, segment_id: UUID) -> None:
        self._readable = [other for other in self._readable if other.segment_id != segment_id]
