"""Cleans one log: reads the keys of the dirty part into a map, and writes the remaining records of each segment group.

Always true: only files ending in `.cleaned` are written, and whoever asked puts them in place (`LogCleaning.
replace_segments`), so that a death at any moment leaves the log as it was. Each batch keeps its offsets, epochs
and sequences; a batch that changes nothing is copied as it is; one that is written anew had the right CRC and
keeps its codec.

`batch_cleaning` decides what stays of a batch; where numba is installed, `compiled_cleaning` goes over its records.
Both use a whole core, so a node runs them in a process of its own (`cleaning_process`). The rules for a log are in
`compaction`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from suiro.clock import monotonic_s, sleep_s
from suiro.config import MAX_INT
from suiro.errors import CorruptRecordError
from suiro.extras import is_installed
from suiro.log.batch_cleaning import Judge, JudgedBatch, KeyMap, Left
from suiro.log.compaction import CLEANED_SUFFIX, Cleaned, CleaningJob, GroupCleaned, SegmentSource, groups_of
from suiro.log.config import LogConfig
from suiro.log.files import FileHandle, write_all
from suiro.log.segment import Segment
from suiro.log.transaction_index import AbortedTransaction, TransactionIndex
from suiro.protocol.compression import NONE, compress, decompress
from suiro.protocol.crc32c import BytesLike, crc32c
from suiro.protocol.record_batch import (
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MIN_LENGTH,
    MIN_RECORD_SIZE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_header,
    read_header,
)


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


def clean(
    job: CleaningJob, *, throttle: Throttle | None = None, compiled: bool | None = None
) -> Iterator[GroupCleaned | Cleaned]:
    """Clean one log. Each `GroupCleaned` may be put in place before the next is asked for; `Cleaned` comes last.

    Raises CorruptRecordError if the log cannot be read, and OSError.
    """
    kind: type[KeyMap] = KeyMap
    if is_installed("numpy", "numba") if compiled is None else compiled:
        from suiro.log.compiled_cleaning import CompiledKeyMap as kind
    cleaning = _Cleaning(job, kind(job.settings), throttle or Throttle(job.settings.max_bytes_per_second))
    cleaning.collect_keys()
    end_offset = cleaning.keys.latest_offset + 1
    groups = groups_of(
        [source for source in job.sources if source.base_offset < end_offset],
        segment_bytes=job.segment_bytes,
        segment_index_bytes=job.segment_index_bytes,
        first_uncleanable_offset=job.first_uncleanable_offset,
    )
    for group in groups:
        cleaning.clean_group(group)
        yield GroupCleaned(bases=tuple(source.base_offset for source in group))
    yield Cleaned(
        end_offset=end_offset,
        bytes_read=cleaning.bytes_read,
        bytes_written=cleaning.bytes_written,
        records_kept=cleaning.records_kept,
        keys=cleaning.keys.count,
    )


class _Cleaning:
    """The work of one job."""

    def __init__(self, job: CleaningJob, keys: KeyMap, throttle: Throttle) -> None:
        self._job = job
        self._throttle = throttle
        self._aborted = sorted({entry for path in job.transaction_indexes for entry in TransactionIndex(path).entries})
        self._across = self._judge()
        self.keys = keys
        self.bytes_read = self.bytes_written = self.records_kept = 0

    def collect_keys(self) -> None:
        """Reads as much of the dirty part as the map takes (Kafka's buildOffsetMap)."""
        job, keys, judge = self._job, self.keys, self._judge()
        start = job.first_dirty_offset
        for source in job.sources:
            end = self._end_of(source)
            if end <= start:
                continue
            for data, batch in self._batches(source, judge):
                header = batch.header
                if header.last_offset < start:
                    continue
                if batch.inspected and not keys.take(_records_of(data, batch), header, start):
                    return
                keys.latest_offset = max(keys.latest_offset, header.last_offset)
            # Behind the last batch there may be offsets without any.
            keys.latest_offset = max(keys.latest_offset, end - 1)

    def clean_group(self, group: Sequence[SegmentSource]) -> None:
        """Writes one new segment for all of these."""
        target = _CleanedSegment(self._job, group)
        with target.filled():
            for source in group:
                for data, batch in self._batches(source, self._across):
                    self._clean(data, batch, target)
            self.bytes_written += target.size

    def _clean(self, data: memoryview, batch: JudgedBatch, target: _CleanedSegment) -> None:
        """Writes what stays of a batch."""
        if batch.marks is not None:
            target.aborted.append(batch.marks)
        header = batch.header
        left = Left(0) if batch.discarded else self.keys.left(_records_of(data, batch), batch, self._job)
        whole = data[batch.position : batch.position + header.size]
        written: bytes | memoryview = whole
        max_timestamp = header.max_timestamp
        if left.kept == 0:
            if not batch.keep_empty:
                return
            written = _empty(header)
        elif left.records is not None:
            # A batch that gets a new CRC must have had the right one: nothing damaged may pass for whole.
            if crc32c(whole[CRC_START:]) != header.crc:
                raise CorruptRecordError(f"the batch at offset {header.base_offset} has a wrong CRC")
            written, max_timestamp = _packed(header, left, left.records), left.max_timestamp
        target.append(written, last_offset=header.last_offset, max_timestamp=max_timestamp)
        self._throttle.spend(len(written))
        self.records_kept += left.kept

    def _batches(self, source: SegmentSource, judge: Judge) -> Iterator[tuple[memoryview, JudgedBatch]]:
        """Reads a segment in pieces, and yields each batch with the piece that it stands in."""
        path = self._job.directory / f"{source.base_offset:020d}.log"
        handle = FileHandle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        end, usual = self._end_of(source), self._job.settings.io_buffer_bytes
        position, wanted = 0, usual
        while position < source.size:
            wanted = min(wanted, source.size - position)
            data = os.pread(handle, wanted, position)
            if len(data) < wanted:
                raise CorruptRecordError(f"{path} ends at byte {position + len(data)} of {source.size}")
            self._throttle.spend(wanted)
            view, whole = memoryview(data), 0
            for batch in judge.scan(data):  # one by one: Python's garbage collector looks again and again at many
                header = batch.header
                # The CRC does not cover the offsets, and an index could not hold those of another segment.
                if not source.base_offset <= header.base_offset <= header.last_offset < end:
                    raise CorruptRecordError(
                        f"the batch at offset {header.base_offset} stands in the segment {source.base_offset:020d} "
                        "and is not of it"
                    )
                size = header.size
                whole = batch.position + size
                self.bytes_read += size
                yield view, batch
            position += whole
            if whole:
                wanted = usual
                continue
            wanted = read_header(data).size if len(data) >= HEADER_SIZE else HEADER_SIZE
            if wanted <= len(data) or wanted > source.size - position:
                raise CorruptRecordError(f"{path}: no whole batch at byte {position}")

    def _end_of(self, source: SegmentSource) -> int:
        """The offset at which the next segment begins."""
        later = [other.base_offset for other in self._job.sources if other.base_offset > source.base_offset]
        return min(later, default=self._job.first_uncleanable_offset)

    def _judge(self) -> Judge:
        job = self._job
        by_producer: dict[int, list[AbortedTransaction]] = {}
        for one in self._aborted:
            by_producer.setdefault(one.producer_id, []).append(one)
        return Judge(
            aborted=by_producer,
            last_of_producers={one: (offset, epoch) for one, offset, epoch in sorted(job.last_of_producers)},
            round_end=job.first_uncleanable_offset,
            now_ms=job.now_ms,
            seen={(producer_id, True) for producer_id in job.aborted_in_tier(self._aborted)},
        )


class _CleanedSegment:
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


def _records_of(data: memoryview, batch: JudgedBatch) -> BytesLike:
    """The records' bytes, which have room for as many as the header claims."""
    header = batch.header
    records: BytesLike = data[batch.position + HEADER_SIZE : batch.position + header.size]
    if header.compression != NONE and header.count > 0:
        records = decompress(header.compression, records)
    if header.count < 0 or header.count * MIN_RECORD_SIZE > len(records):
        raise CorruptRecordError(
            f"the batch at offset {header.base_offset} claims {header.count} records in {len(records)} bytes"
        )
    return records


def _packed(header: BatchHeader, left: Left, records: BytesLike) -> bytes:
    """A batch of the records that stay."""
    payload = compress(header.compression, records)
    new = replace(
        header,
        length=MIN_LENGTH + len(payload),
        attributes=header.attributes | (DELETE_HORIZON_BIT if left.new_horizon else 0),
        base_timestamp=left.base_timestamp,
        max_timestamp=left.max_timestamp,
        count=left.kept,
    )
    return pack_header(new, crc_tail=crc32c(payload)) + payload


def _empty(header: BatchHeader) -> bytes:
    """A batch without records, which keeps the place, the epochs and the sequence of this one."""
    new = replace(
        header,
        length=MIN_LENGTH,
        attributes=header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT),
        base_timestamp=NO_TIMESTAMP,
        count=0,
    )
    return pack_header(new, crc_tail=crc32c(b""))
