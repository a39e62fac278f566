"""Counts the oldest segments of a log that may be deleted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SegmentFacts(NamedTuple):
    """`end_offset` is the next segment's base, or the log's end for the last one."""

    end_offset: int
    size: int
    latest_ms: int


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
