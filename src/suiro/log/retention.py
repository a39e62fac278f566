"""Counts the oldest segments of a log that may be deleted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from suiro.log.config import LogConfig


class SegmentFacts(NamedTuple):
    """`end_offset` is the next segment's base, or the log's end for the last one."""

    end_offset: int
    size: int
    latest_ms: int


def expired_segments(
    segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, log_start_offset: int
) -> int:
    """How many segments from the oldest on may be deleted now; all of them means the active one too.

    A segment goes when every record in it is before the log's start, and, with
    `cleanup.policy=delete`, when its latest record is older than `retention.ms` or the log without
    it still holds `retention.bytes`.
    """
    count = 0
    # The last segment is never deleted for lying before the log's start: appends go on in it.
    while count < len(segments) - 1 and segments[count].end_offset <= log_start_offset:
        count += 1
    if not config.deletes_old_segments:
        return count
    excess = sum(segment.size for segment in segments[count:]) - config.retention_bytes
    for number, segment in enumerate(segments[count:], count):
        too_old = config.retention_ms >= 0 and now_ms - segment.latest_ms > config.retention_ms
        too_much = config.retention_bytes >= 0 and excess >= segment.size
        appended_to = number == len(segments) - 1
        if (appended_to and segment.size == 0) or not (too_old or too_much):
            break
        excess -= segment.size
        count += 1
    return count
