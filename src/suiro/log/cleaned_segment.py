"""The files of a cleaning: reads a segment in pieces, and writes the files of a new one.

Always true: only files ending in `.cleaned` are written, and what is not finished is removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from suiro.clock import monotonic_s, sleep_s
from suiro.config import MAX_INT
from suiro.errors import CorruptRecordError
from suiro.log.batch_cleaning import Judge, JudgedBatch
from suiro.log.compaction import CLEANED_SUFFIX, CleaningJob, SegmentSource
from suiro.log.config import LogConfig
from suiro.log.files import FileHandle, write_all
from suiro.log.segment import Segment
from suiro.log.transaction_index import AbortedTransaction
from suiro.protocol.record_batch import HEADER_SIZE, read_header


class Throttle:
    """Keeps what is read and written under a rate by sleeping."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._begun = monotonic_s()
        self._bytes = 0

    def spend(self, count: int) -> None:
        self._bytes += count
        ahead = self._bytes / self._rate - (monotonic_s() - self._begun)
        if ahead > 0.001:
            sleep_s(ahead)


def pieces(
    job: CleaningJob, source: SegmentSource, throttle: Throttle, judge: Judge
) -> Iterator[tuple[memoryview, list[JudgedBatch]]]:
    """Reads a segment in pieces of whole batches, at least one each."""
    path = job.directory / f"{source.base_offset:020d}.log"
    handle = FileHandle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    position, wanted = 0, job.settings.io_buffer_bytes
    while position < source.size:
        data = os.pread(handle, min(wanted, source.size - position), position)
        throttle.spend(len(data))
        batches = judge.scan(data)
        if batches:
            whole = batches[-1].position + batches[-1].header.size
            position += whole
            wanted = job.settings.io_buffer_bytes
            yield memoryview(data)[:whole], batches
            continue
        size = read_header(data).size if len(data) >= HEADER_SIZE else HEADER_SIZE
        if size <= len(data) or size > source.size - position:
            raise CorruptRecordError(f"{path}: no whole batch at byte {position}")
        wanted = size


class CleanedSegment:
    """A segment that nobody reads yet: its files end in `.cleaned`."""

    def __init__(self, job: CleaningJob, group: Sequence[SegmentSource]) -> None:
        self._last = job.directory / f"{group[-1].base_offset:020d}.log"
        config = LogConfig(segment_index_bytes=job.segment_index_bytes, index_interval_bytes=job.index_interval_bytes)
        make = partial(
            Segment, job.directory, group[0].base_offset, config, created_ms=job.now_ms, suffix=CLEANED_SUFFIX
        )
        make().unlink()
        self._segment = make()
        self.aborted: list[AbortedTransaction] = []

    @property
    def size(self) -> int:
        return self._segment.size

    @contextmanager
    def filled(self) -> Iterator[None]:
        """The caller appends what stays of the group. Then all files are on the disk, or none."""
        segment = self._segment
        indexes = segment.offset_index, segment.time_index
        try:
            _ = segment.handle, *(index.handle for index in indexes)
            yield
            segment.seal()
            for index in indexes:
                index.flush()  # raises where `seal` could not
            segment.transaction_index.entries.extend(self.aborted)
            for one in (segment, *indexes):
                os.fsync(one.handle)
            for handle in segment.transaction_index.handles_to_sync():
                os.fsync(handle)
            modified = self._last.stat().st_mtime_ns
            os.utime(segment.path, ns=(modified, modified))
        except BaseException:
            segment.unlink()
            raise

    def append(self, batch: bytes | memoryview, *, last_offset: int, max_timestamp: int) -> None:
        """Add a batch that stays, and its entries in both indexes. Raises OSError."""
        position, size = self._segment.size, len(batch)
        if position + size > MAX_INT:
            raise CorruptRecordError(f"{self._segment.path} would be larger than a segment can be")
        write_all(self._segment.handle, [batch], position, size)
        self._segment.size += size
        self._segment.add_to_indexes(position, size, last_offset=last_offset, max_timestamp=max_timestamp)
