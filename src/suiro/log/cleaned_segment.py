"""The files of a cleaning: reads a segment in pieces, and writes the files of a new one.

Always true: only files ending in `.cleaned` are written, and what is not finished is removed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from suiro.clock import monotonic_s, sleep_s
from suiro.config import MAX_INT
from suiro.errors import CorruptRecordError
from suiro.log.compaction import CLEANED_SUFFIX, CleaningJob, SegmentSource
from suiro.log.files import FileHandle, write_all
from suiro.log.index import OFFSET_ENTRY, TIME_ENTRY
from suiro.log.swap import SEGMENT_SUFFIXES
from suiro.log.transaction_index import AbortedTransaction, TransactionIndex
from suiro.protocol.crc32c import BytesLike
from suiro.protocol.record_batch import HEADER_SIZE, NO_TIMESTAMP, read_header

T = TypeVar("T")
_WRITTEN_TOGETHER = 512 << 10


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
    job: CleaningJob, source: SegmentSource, throttle: Throttle, scan: Callable[[bytes], tuple[int, T]]
) -> Iterator[tuple[memoryview, T]]:
    """Reads a segment in pieces of whole batches, at least one each. Yields each piece with the result of `scan`.

    `scan` takes bytes that may end inside a batch. It returns how many of them are whole batches, and its result.
    """
    path = job.directory / f"{source.base_offset:020d}.log"
    handle = FileHandle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    position, wanted = 0, job.settings.io_buffer_bytes
    while position < source.size:
        data = os.pread(handle, min(wanted, source.size - position), position)
        throttle.spend(len(data))
        whole, said = scan(data)
        if whole:
            position += whole
            wanted = job.settings.io_buffer_bytes
            yield memoryview(data)[:whole], said
            continue
        size = read_header(data).size if len(data) >= HEADER_SIZE else HEADER_SIZE
        if size <= len(data) or size > source.size - position:
            raise CorruptRecordError(f"{path}: no whole batch at byte {position}")
        wanted = size


class CleanedSegment:
    """The four files of a segment that nobody reads yet."""

    def __init__(self, job: CleaningJob, base_offset: int) -> None:
        self._directory = job.directory
        self._stem = job.directory / f"{base_offset:020d}"
        self._base_offset = base_offset
        self._interval_bytes = job.index_interval_bytes
        self.size = 0
        self.aborted: list[AbortedTransaction] = []
        self._remove()
        self._log = _new_file(self._path(".log"))
        self._unwritten = bytearray()
        self._offset_index = bytearray()
        self._time_index = bytearray()
        self._since_entry = 0
        self._largest, self._its_offset = NO_TIMESTAMP, base_offset
        self._last_entry = NO_TIMESTAMP

    @contextmanager
    def filled(self, group: Sequence[SegmentSource]) -> Iterator[None]:
        """The caller appends what stays of these segments. Then all files are on the disk, or none."""
        try:
            yield
            self._finish()
            last = self._directory / f"{group[-1].base_offset:020d}.log"
            modified = last.stat().st_mtime_ns
            os.utime(self._path(".log"), ns=(modified, modified))
        except BaseException:
            self._remove()
            raise

    def append(self, batch: BytesLike, *, last_offset: int, max_timestamp: int) -> None:
        """Add a batch that stays, and the entries of both indexes."""
        if self.size + len(batch) > MAX_INT:
            raise CorruptRecordError(f"{self._path('.log')} would be larger than a segment can be")
        if max_timestamp > self._largest:
            self._largest, self._its_offset = max_timestamp, last_offset
        if self._since_entry > self._interval_bytes:
            self._offset_index += OFFSET_ENTRY.pack(last_offset - self._base_offset, self.size)
            self._add_time_entry()
            self._since_entry = 0
        self._since_entry += len(batch)
        self.size += len(batch)
        self._unwritten += batch
        if len(self._unwritten) >= _WRITTEN_TOGETHER:
            self._write()

    def _add_time_entry(self) -> None:
        if self._largest > self._last_entry:
            self._time_index += TIME_ENTRY.pack(self._largest, self._its_offset - self._base_offset)
            self._last_entry = self._largest

    def _write(self) -> None:
        count = len(self._unwritten)
        if count:
            write_all(self._log, [bytes(self._unwritten)], self.size - count, count)
        self._unwritten.clear()

    def _finish(self) -> None:
        self._write()
        self._add_time_entry()  # as every sealed segment ends
        handles = [self._log]
        for suffix, content in ((".index", self._offset_index), (".timeindex", self._time_index)):
            handle = _new_file(self._path(suffix))
            if content:
                write_all(handle, [bytes(content)], 0, len(content))
            handles.append(handle)
        if self.aborted:
            transactions = TransactionIndex(self._path(".txnindex"))
            transactions.entries.extend(self.aborted)
            transactions.flush()
            handles += transactions.handles_to_sync()
        for handle in handles:
            os.fsync(handle)

    def _path(self, suffix: str) -> Path:
        return self._stem.with_name(self._stem.name + suffix + CLEANED_SUFFIX)

    def _remove(self) -> None:
        for suffix in SEGMENT_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(suffix))


def _new_file(path: Path) -> FileHandle:
    return FileHandle(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
