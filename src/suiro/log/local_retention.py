"""Counts the segments of a tiered log that may be deleted from the local disk. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from suiro.log.config import LogConfig
from suiro.log.retention import SegmentFacts


def locally_expired(
    segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, log_start_offset: int
) -> int:
    """How many segments from the oldest on `local.retention.*` no longer asks for, copied or not.

    A compacted topic keeps what is not named in so many words: `retention.*`, which stand in for
    `local.retention.*`, do not apply to it. All of them means the active one too: it is to be rolled.
    """
    count = 0
    while count < len(segments) - 1 and segments[count].end_offset <= log_start_offset:
        count += 1
    keep_ms, keep_bytes = config.local_retention
    excess = sum(segment.size for segment in segments[count:]) - keep_bytes
    for number in range(count, len(segments)):
        segment, is_active = segments[number], number == len(segments) - 1
        too_old = keep_ms >= 0 and now_ms - segment.latest_ms > keep_ms
        too_much = keep_bytes >= 0 and excess >= segment.size
        if (is_active and segment.size == 0) or not (too_old or too_much):
            break
        excess -= segment.size
        count += 1
    return count


def removable(segments: Sequence[SegmentFacts], count: int, *, safe_offset: int) -> int:
    """How many of the first `count` segments end at or before an offset: what lies behind is nowhere else."""
    while count and segments[count - 1].end_offset > safe_offset:
        count -= 1
    return count
