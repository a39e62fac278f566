"""Finding records by their time: the look-ups that read record bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from suiro.errors import CorruptRecordError
from suiro.log.errors import DamagedLogError
from suiro.log.files import FileHandle
from suiro.log.segment import Segment, batch_headers
from suiro.log.segments import Segments
from suiro.protocol import time_search
from suiro.protocol.record_batch import NO_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLookup:
    """A look-up in one segment. It may run in another thread, because the bytes that it reads do not change."""

    where: str
    handle: FileHandle
    base_offset: int
    start: int
    end: int
    timestamp: int
    from_offset: int

    def run(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at least this late. Raises `DamagedLogError`."""
        for position, header in batch_headers(
            self.handle, self.start, self.end, where=self.where, from_offset=self.base_offset
        ):
            if header.max_timestamp < self.timestamp:
                continue
            batch = os.pread(self.handle, header.size, position)
            try:
                found = time_search.first_at_or_after(batch, self.timestamp, from_offset=self.from_offset)
            except CorruptRecordError as error:
                raise DamagedLogError(f"{self.where} is damaged at byte {position}: {error}") from error
            if found is not None:
                return found
        return None


def lookups_by_time(segments: Segments, timestamp: int, *, log_start_offset: int) -> Iterator[TimeLookup]:
    """Yields the look-ups that may find the first record at least this late, one for each segment, in order.

    Between two of them, retention may delete segments, and cleaning may put one in the place of several.
    """
    offset: int | None = log_start_offset
    while offset is not None and len(segments):
        segment, offset = segments.holding(offset)
        if segment.size == 0:
            continue
        near = segment.offset_before(timestamp)
        if segment.max_timestamp < timestamp:
            continue
        start = segment.position_of(max(near, log_start_offset))
        if start is None:
            continue
        yield TimeLookup(
            where=str(segment.path),
            handle=segment.handle,
            base_offset=segment.base_offset,
            start=start,
            end=segment.size,
            timestamp=timestamp,
            from_offset=log_start_offset,
        )


def largest_timestamp(segments: Iterable[Segment]) -> int:
    """Returns the largest timestamp of all records in the log, or -1 if there is none."""
    segments = tuple(segments)
    for segment in segments:
        if segment.size:
            segment.check_times()
    return max((segment.max_timestamp for segment in segments), default=NO_TIMESTAMP)
