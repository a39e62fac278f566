"""One segment: a `.log` file of record batches and the three indexes beside it.

Always true: `size` bytes of the file are whole batches (a failed write is cut off again before the
error is raised), offsets rise, and the indexes know nothing that the log does not hold. Which bytes
may be appended is decided above, in `partition`; what a crash left behind is mended in `recovery`.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from suiro.errors import CorruptRecordError
from suiro.log.config import LogConfig
from suiro.log.errors import StorageError, TornSegmentError
from suiro.log.files import OPEN_FILES, FileHandle, open_handle, write_all
from suiro.log.index import OffsetIndex, TimeIndex
from suiro.log.transaction_index import TransactionIndex
from suiro.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header

LOG_SUFFIX = ".log"
NO_TIMESTAMP = -1
MAX_RELATIVE_OFFSET = 2**31 - 1
_SCAN_CHUNK_BYTES = 4096
_POSITIONS_REMEMBERED = 64


class Segment:
    """Offsets from `base_offset` to the next segment's. Opens its files when they are first needed."""

    def __init__(self, directory: Path, base_offset: int, config: LogConfig, *, created_ms: int) -> None:
        stem = f"{directory}/{base_offset:020d}"  # text: there may be a hundred thousand of these objects
        self.base_offset = base_offset
        self._path = stem + LOG_SUFFIX
        self.offset_index = OffsetIndex(stem + ".index", max_bytes=config.segment_index_bytes)
        self.time_index = TimeIndex(stem + ".timeindex", max_bytes=config.segment_index_bytes)
        self.transaction_index = TransactionIndex(stem + ".txnindex")
        self.size = _size_of(self._path)
        self.created_ms = created_ms
        self._index_interval_bytes = config.index_interval_bytes
        # Partitions that were made together are not to roll together.
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        self._roll_jitter_ms = random.randrange(jitter_ms) if jitter_ms else 0
        self._handle: FileHandle | None = None
        self._bytes_since_index_entry = 0
        self._max_timestamp: tuple[int, int] | None = (NO_TIMESTAMP, base_offset) if self.size == 0 else None
        self._first_timestamp: int | None = None
        self._positions: dict[int, int] = {}

    @property
    def path(self) -> Path:
        return Path(self._path)

    @property
    def handle(self) -> FileHandle:
        """The open log file. Whoever sends from it later keeps this object (see `files`)."""
        handle = self._handle
        if handle is None:
            handle = self._handle = open_handle(self._path, create=True)
            OPEN_FILES.opened(self)
        return handle

    @property
    def max_timestamp(self) -> int:
        return self._largest()[0]

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch that has the largest timestamp."""
        return self._largest()[1]

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp: what `segment.ms` counts from. -1 in an empty segment."""
        if self._first_timestamp is None:
            first = next(self.headers(), None)
            self._first_timestamp = NO_TIMESTAMP if first is None else first[1].max_timestamp
        return self._first_timestamp

    @property
    def latest_ms(self) -> int:
        """How old the segment is: its largest timestamp, or when its file was last written to."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return int(self.path.stat().st_mtime * 1000)

    def is_due(
        self, config: LogConfig, *, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch is too much, too late or too far for this segment and belongs in a new one."""
        if self.size == 0:
            return False
        first = self.first_timestamp
        waited = max_timestamp - first if first >= 0 and max_timestamp >= 0 else now_ms - self.created_ms
        return (
            self.size + size > config.segment_bytes
            or waited > config.roll_ms - self._roll_jitter_ms
            or self.offset_index.is_full
            or self.time_index.is_full
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        )

    def append(
        self, buffers: Sequence[bytes | memoryview], size: int, *, last_offset: int, max_timestamp: int
    ) -> None:
        """Write one batch. Raises StorageError with the segment as it was before, or TornSegmentError."""
        position = self.size
        try:
            handle, _ = (
                self.handle,
                self._largest(),
            )  # All that may have to be opened is, before a byte is written.
        except OSError as error:
            raise StorageError(f"cannot open {self.path}: {error.strerror}") from error
        try:
            write_all(handle, buffers, position, size)
        except OSError as error:
            try:
                os.ftruncate(handle, position)
            except OSError as second:
                raise TornSegmentError(
                    f"cannot append {size} bytes to {self.path} ({error.strerror}), nor cut off the part that was "
                    f"written ({second.strerror})"
                ) from error
            raise StorageError(f"cannot append {size} bytes to {self.path}: {error.strerror}") from error
        self.size = position + size
        self.add_to_indexes(position, size, last_offset=last_offset, max_timestamp=max_timestamp)

    def add_to_indexes(self, position: int, size: int, *, last_offset: int, max_timestamp: int) -> None:
        """What an append leaves in the indexes: an entry for the first batch after each interval."""
        if position == 0:
            self._first_timestamp = max_timestamp
        largest = self._largest()
        if max_timestamp > largest[0]:
            self._max_timestamp = largest = (max_timestamp, last_offset)
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self.offset_index.add(last_offset - self.base_offset, position)
            self.time_index.add_if_later(largest[0], largest[1] - self.base_offset)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the whole batches from a batch start on; stops at a torn or foreign tail."""
        return batch_headers(self.handle, position, self.size)

    def position_of(self, offset: int) -> int | None:
        """Where the first batch begins whose last offset is at least `offset`; None past the last batch."""
        known = self._positions.get(offset)
        if known is not None:
            return known
        start = self.offset_index.position_before(offset - self.base_offset)
        for position, header in self.headers(start):
            if header.last_offset >= offset:
                return position
        return None

    def remember(self, offset: int, position: int) -> None:
        """Keep where a batch begins that is likely to be asked for: where a reader or a transaction stands."""
        self._positions[offset] = position
        if len(self._positions) > _POSITIONS_REMEMBERED:
            del self._positions[next(iter(self._positions))]

    def whole_batches(self, position: int, end: int, *, max_bytes: int) -> tuple[int, int | None]:
        """Where to stop so that at most `max_bytes` of whole batches follow, and the offset found there.

        At least one batch is taken, whatever its size.
        """
        if end - position <= max_bytes:
            return end, None
        start = max(position, self.offset_index.batch_start_before(position + max_bytes))
        stop = start
        for stop, header in self.headers(start):
            if stop >= end:
                return end, None
            if stop + header.size > position + max_bytes and stop > position:
                return stop, header.base_offset
        return end, None

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        return os.pread(self.handle, header.size, position)

    def seal(self) -> None:
        """No append will follow: the largest timestamp goes into the index, files are let go."""
        largest = self._largest()
        self.time_index.add_if_later(largest[0], largest[1] - self.base_offset)
        self.release()

    def release(self) -> None:
        """Let go of the open files; the next use opens them again."""
        self.offset_index.release()
        self.time_index.release()
        if self._handle is not None:
            self._handle = None
            OPEN_FILES.closed(self)

    def handles_to_sync(self) -> list[FileHandle]:
        """The open files to sync, all that was written handed to the operating system."""
        indexes = [index for index in (self.offset_index, self.time_index) if index.count]
        for index in indexes:
            # On a full disk the entries stay in memory; without them a look-up reads more, and finds the same.
            with contextlib.suppress(OSError):
                index.flush()
        return [self.handle, *(index.handle for index in indexes), *self.transaction_index.handles_to_sync()]

    def create(self) -> None:
        """Have the files on disk, empty where they are new. Raises StorageError."""
        try:
            _ = self.handle, self.offset_index.handle, self.time_index.handle
        except OSError as error:
            raise StorageError(f"cannot create {self.path}: {error.strerror}") from error
        self.release()  # A partition that nobody writes to keeps no file open.

    def cut(self, size: int) -> None:
        """Cut the log file to `size` bytes, a batch boundary at or behind the last indexed batch."""
        if size != self.size:
            os.ftruncate(self.handle, size)
            self.size = size

    def forget(self) -> None:
        """Empty the indexes and what is known of the content."""
        self.offset_index.clear()
        self.time_index.clear()
        self.transaction_index.clear()
        self._positions.clear()
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        self._first_timestamp = None
        self._bytes_since_index_entry = 0

    def unlink(self) -> None:
        """Remove the files' names. The log goes first: indexes without a log are swept at the next start."""
        self.path.unlink(missing_ok=True)
        for path in (self.offset_index.path, self.time_index.path, self.transaction_index.path):
            path.unlink(missing_ok=True)
        self._handle = None

    def _largest(self) -> tuple[int, int]:
        if self._max_timestamp is None:
            last = self.time_index.last()
            relative = (NO_TIMESTAMP, 0) if last is None else last
            self._max_timestamp = (relative[0], relative[1] + self.base_offset)
        return self._max_timestamp


def batch_headers(handle: FileHandle, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of a file's whole batches from a batch start up to `end`; stops at a torn or foreign tail."""
    chunk, chunk_start = b"", 0
    while position + HEADER_SIZE <= end:
        if position + HEADER_SIZE > chunk_start + len(chunk):
            chunk, chunk_start = os.pread(handle, _SCAN_CHUNK_BYTES, position), position
        try:
            header = read_header(chunk, position - chunk_start)
        except CorruptRecordError:
            return
        if position + header.size > end:
            return
        yield position, header
        position += header.size


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
