"""One segment: a `.log` file of record batches and its three indexes.

Always true of a sound one: `size` bytes of the file are whole batches (a failed write is cut off
again before the error is raised), offsets rise, and the indexes know nothing that the log does not
hold. A reader does not trust the files: bytes that should be a batch and are not raise DamagedLogError, and an index
entry is used only if the batch at its position matches. Otherwise both indexes are rebuilt from the headers. Checksums
are verified by recovery and by clients, not by a read.
`partition` decides which bytes may be appended; `recovery` repairs what a crash left.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from suiro.config import MAX_INT
from suiro.errors import CorruptRecordError
from suiro.log.config import LogConfig
from suiro.log.errors import DamagedLogError, StorageError, TornSegmentError
from suiro.log.files import FileHandle, KeptFile, write_all
from suiro.log.index import OffsetIndex, TimeIndex
from suiro.log.transaction_index import TransactionIndex
from suiro.protocol.record_batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, read_header
from suiro.protocol.records import Record, decode_batch

logger = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
_SCAN_CHUNK_BYTES = 4096
_POSITIONS_REMEMBERED = 64


class Segment(KeptFile):
    """Offsets from `base_offset` to the next segment's: its log file, which it keeps open, and that file's indexes."""

    def __init__(
        self, directory: Path, base_offset: int, config: LogConfig, *, created_ms: int, suffix: str = ""
    ) -> None:
        """`suffix`: of all its files, while they do not count yet."""
        stem = f"{directory}/{base_offset:020d}"  # text: there may be a hundred thousand of these objects
        super().__init__(stem + LOG_SUFFIX + suffix)
        self.base_offset = base_offset
        self.offset_index = OffsetIndex(f"{stem}.index{suffix}", max_bytes=config.segment_index_bytes)
        self.time_index = TimeIndex(f"{stem}.timeindex{suffix}", max_bytes=config.segment_index_bytes)
        self.transaction_index = TransactionIndex(f"{stem}.txnindex{suffix}")
        self.size = _size_of(self._path)
        self.created_ms = created_ms
        self._index_interval_bytes = config.index_interval_bytes
        # Partitions that were made together are not to roll together.
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        self._roll_jitter_ms = random.randrange(jitter_ms) if jitter_ms else 0
        self._bytes_since_index_entry = 0
        self._max_timestamp: tuple[int, int] | None = (NO_TIMESTAMP, base_offset) if self.size == 0 else None
        self._first_timestamp: int | None = None
        self._positions: dict[int, int] = {}
        # What this process writes into a new file needs no check.
        self._offsets_checked = self._times_checked = self.size == 0

    @property
    def max_timestamp(self) -> int:
        return self._largest()[0]

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp: what `segment.ms` counts from. -1 in an empty segment."""
        if self._first_timestamp is None:
            try:
                first = next(self.headers(), None)
            except DamagedLogError:
                first = None  # Readers get the error. Appends, which only need to know when to roll, go on.
            self._first_timestamp = NO_TIMESTAMP if first is None else first[1].max_timestamp
        return self._first_timestamp

    @property
    def latest_ms(self) -> int:
        """The age of the segment: its largest timestamp, or the time of the last write to its file."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return int(self.path.stat().st_mtime * 1000)

    def is_due(self, config: LogConfig, *, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
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
            or last_offset - self.base_offset > MAX_INT
        )

    def append(self, buffers: Sequence[bytes | memoryview], size: int, *, last_offset: int, max_timestamp: int) -> None:
        """Write one batch. Raises StorageError with the segment as it was before, or TornSegmentError."""
        position = self.size
        try:
            # All that may have to be opened is opened before a byte is written.
            handle, _ = self.handle, self._largest()
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
        """Add a batch to the indexes, which have an entry for the first batch after each interval."""
        if position == 0:
            self._first_timestamp = max_timestamp
        largest = self._largest()
        if max_timestamp > largest[0]:
            self._max_timestamp = largest = (max_timestamp, last_offset)
        if self._bytes_since_index_entry > self._index_interval_bytes:
            # The batch is in the log already, so an index that cannot be read must not fail the append. The next
            # batch gets the entry. Until then a look-up reads more and finds the same.
            with contextlib.suppress(OSError):
                self.time_index.add_if_later(largest[0], largest[1] - self.base_offset)
                self.offset_index.add(last_offset - self.base_offset, position)
                self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from a batch start to the end. Raises DamagedLogError at what is none."""
        return batch_headers(self.handle, position, self.size, where=self._path, from_offset=self.base_offset)

    def damaged(self, position: int, what: object) -> DamagedLogError:
        return DamagedLogError(f"{self._path} is damaged at byte {position} of {self.size}: {what}")

    def position_of(self, offset: int) -> int | None:
        """Returns where the first batch with a last offset of at least `offset` begins, or None past the last batch."""
        found = self.batch_at(offset)
        return None if found is None else found[0]

    def batch_at(self, offset: int) -> tuple[int, int] | None:
        """Returns (position, base offset) of that batch; the latter is at most `offset` if no offset is missing."""
        known = self._positions.get(offset)
        if known is not None:
            return known, offset
        self._check_offsets()
        entry = self.offset_index.entry_before(offset - self.base_offset)
        for position, header in self.headers(self._indexed(entry)):
            if header.last_offset >= offset:
                return position, header.base_offset
        return None

    def last_indexed_position(self) -> int:
        """Returns where the last batch of the offset index begins, or 0 if the index is empty."""
        self._check_offsets()
        return self._indexed(self.offset_index.last())

    def _indexed(self, entry: tuple[int, int] | None) -> int:
        """Returns where the batch of an index entry begins, or 0 after rebuilding the indexes if the entry is wrong."""
        if entry is None:
            return 0
        try:
            agrees = self._agrees(*entry)
        except (CorruptRecordError, OSError):
            agrees = False
        if agrees:
            return entry[1]
        self.rebuild_indexes(f"its entry {entry} leads to no such batch")
        return 0

    def _agrees(self, relative_offset: int, position: int) -> bool:
        if not 0 < position <= self.size - HEADER_SIZE:
            return False
        header = read_header(os.pread(self.handle, HEADER_SIZE, position))
        return (
            self.base_offset <= header.base_offset <= header.last_offset <= self.base_offset + relative_offset
            and position + header.size <= self.size
        )

    def _check_offsets(self) -> None:
        """Checks once that the offset index is there and whole, or rebuilds it."""
        if not self._offsets_checked:
            self._offsets_checked = True
            if not self.offset_index.is_whole:
                self.rebuild_indexes("its offset index is missing or cut")

    def check_times(self) -> bool:
        """Checks once that the last time entry, which stands for the segment's age, matches its batch. Returns whether
        the indexes were rebuilt."""
        if self._times_checked:
            return False
        if self._are_times_sound():
            self._times_checked = True  # only now: a disk that failed within the check has told nothing
            return False
        self.rebuild_indexes("its time index is missing, cut, or ends with a time that no batch has")
        return True

    def _are_times_sound(self) -> bool:
        last = self.time_index.last()
        if last is None:
            return self.first_timestamp < 0
        return self.time_index.is_whole and self._has_time(*last) and not self._has_later()

    def _has_time(self, timestamp: int, relative_offset: int) -> bool:
        try:
            position = self.position_of(self.base_offset + relative_offset)
            if relative_offset < 0 or position is None:
                return False
            header = read_header(os.pread(self.handle, HEADER_SIZE, position))
        except CorruptRecordError:
            return False
        return header.base_offset <= self.base_offset + relative_offset and header.max_timestamp == timestamp

    def _has_later(self) -> bool:
        """Whether a batch behind the last index entry is later than the latest known one, because the time index was
        cut."""
        largest = self.max_timestamp
        try:
            return any(header.max_timestamp > largest for _, header in self.headers(self.last_indexed_position()))
        except DamagedLogError:
            return False

    def offset_before(self, timestamp: int) -> int:
        """An offset before which no record of the segment is as late as this timestamp."""
        self.check_times()
        entry = self.time_index.entry_before(timestamp)
        if entry is not None and not self._has_time(*entry):
            self.rebuild_indexes(f"its time entry {entry} is of no batch")
            return self.base_offset
        return self.base_offset + (0 if entry is None else entry[1])

    def rebuild_indexes(self, why: str) -> None:
        """Rebuild the offset index and the time index from all headers of the segment."""
        logger.warning("%s: the indexes are built again, for %s", self._path, why)
        self.begin_indexes()
        self._times_checked = False  # until all is read: the disk may fail in the middle
        try:
            for position, header in self.headers():
                self.add_to_indexes(
                    position, header.size, last_offset=header.last_offset, max_timestamp=header.max_timestamp
                )
        except DamagedLogError as error:
            logger.error("%s: what is behind cannot be read", error)
        largest = self._largest()
        self.time_index.add_if_later(largest[0], largest[1] - self.base_offset)
        self._times_checked = True
        for index in (self.offset_index, self.time_index):
            with contextlib.suppress(OSError):  # On a full disk they stay in memory.
                index.flush()

    def remember(self, offset: int, position: int) -> None:
        """Keep where a batch begins that is likely to be looked up: the next one of a reader or of a transaction."""
        self._positions[offset] = position
        if len(self._positions) > _POSITIONS_REMEMBERED:
            del self._positions[next(iter(self._positions))]

    def whole_batches(self, position: int, end: int, *, max_bytes: int) -> tuple[int, int | None]:
        """Where to stop so that at most `max_bytes` of whole batches follow, and the offset found there.

        At least one batch is taken, whatever its size.
        """
        if end - position <= max_bytes:
            return end, None
        start = max(position, self._indexed(self.offset_index.entry_at_position(position + max_bytes)))
        whole = start
        try:
            for stop, header in self.headers(start):
                if stop >= end:
                    return end, None
                if stop + header.size > position + max_bytes and stop > position:
                    return stop, header.base_offset
                whole = stop + header.size
        except DamagedLogError:
            # Whole batches are read. The next read gets the error.
            if whole > position:
                return whole, None
            raise
        return end, None

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        return os.pread(self.handle, header.size, position)

    def records(self, position: int, header: BatchHeader) -> tuple[Record, ...]:
        """The records of one batch. Raises DamagedLogError."""
        try:
            return decode_batch(self.read_batch(position, header))
        except CorruptRecordError as error:
            raise self.damaged(position, error) from error

    def seal(self) -> None:
        """No append will follow: write the largest timestamp into the index, and close the files."""
        largest = self._largest()
        self.time_index.add_if_later(largest[0], largest[1] - self.base_offset)
        self.release()

    def release(self) -> None:
        """Let go of all three files."""
        self.offset_index.release()
        self.time_index.release()
        super().release()

    def handles_to_sync(self) -> list[FileHandle]:
        """Returns the open files to sync, after writing all entries in memory to them."""
        indexes = [index for index in (self.offset_index, self.time_index) if index.count]
        for index in indexes:
            # On a full disk the entries stay in memory. Without them a look-up reads more and finds the same.
            with contextlib.suppress(OSError):
                index.flush()
        return [self.handle, *(index.handle for index in indexes), *self.transaction_index.handles_to_sync()]

    def create(self) -> None:
        """Make the files that do not exist. Raises StorageError."""
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
        """Empty the indexes, and forget the content."""
        self.transaction_index.clear()
        self._positions.clear()
        self.begin_indexes()

    def begin_indexes(self) -> None:
        """Empty the offset and the time index, to be built again from the first batch on. Raises StorageError."""
        try:
            self.offset_index.clear()
            self.time_index.clear()
        except OSError as error:
            raise StorageError(f"cannot build the indexes of {self._path} again: {error.strerror}") from error
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        self._first_timestamp = None
        self._bytes_since_index_entry = 0
        self._offsets_checked = self._times_checked = True

    def unlink(self) -> None:
        """Remove the files' names. The log goes first: indexes without a log are swept at the next start."""
        self.path.unlink(missing_ok=True)
        for path in (self.offset_index.path, self.time_index.path, self.transaction_index.path):
            path.unlink(missing_ok=True)
        self._handle = None

    def _largest(self) -> tuple[int, int]:
        if self._max_timestamp is None:
            timestamp, relative_offset = self.time_index.last() or (NO_TIMESTAMP, 0)
            self._max_timestamp = (timestamp, relative_offset + self.base_offset)
        return self._max_timestamp


def batch_headers(
    handle: FileHandle, position: int, end: int, *, where: str, from_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of a file's batches from a batch start up to `end`, their offsets rising from one on.

    None is 2^31 or more behind that one: no index could hold it. Raises DamagedLogError where there is no such batch,
    or a part of one. `where` names the file.
    """
    chunk, chunk_start, most = b"", 0, from_offset + MAX_INT
    while position < end:
        if position + HEADER_SIZE > chunk_start + len(chunk):
            chunk, chunk_start = os.pread(handle, _SCAN_CHUNK_BYTES, position), position
        try:
            header = read_header(chunk, position - chunk_start)
        except CorruptRecordError as error:
            wrong = str(error)
        else:
            wrong = ""
            if position + header.size > end:
                wrong = f"a batch of {header.size} bytes is cut"
            elif header.base_offset < from_offset or header.last_offset_delta < 0 or header.last_offset > most:
                wrong = f"a batch has offset {header.base_offset}"
        if wrong:
            raise DamagedLogError(
                f"{where} is damaged at byte {position} of {end}, where the batch of offset {from_offset} or later "
                f"should begin: {wrong}"
            )
        yield position, header
        position += header.size
        from_offset = header.next_offset


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
