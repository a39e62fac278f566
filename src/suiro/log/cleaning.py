"""Cleaning one log: read the dirty part's keys into a map, write what stays of each group of segments.

Always true: only files ending in `.cleaned` are written, and whoever asked puts them in place (`PartitionLog.
replace_segments`), so that a death at any moment leaves the log as it was. Each batch keeps its offsets, epochs
and sequences; a batch that changes nothing is copied as it is; one that is written anew had the right CRC and
keeps its codec. The work per record is in `cleaning_kernels`; here is what happens once per 512 KB, and once
per compressed batch.

It loads numba and takes a core for as long as it lasts, so a node runs it in a process of its own
(`cleaning_process`). The rules are in `compaction`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from suiro.errors import CorruptRecordError
from suiro.log import cleaning_kernels as kernels
from suiro.log.compaction import (
    CLEANED_SUFFIX,
    MAX_INT,
    Cleaned,
    CleaningJob,
    GroupCleaned,
    SegmentSource,
    groups_of,
)
from suiro.log.files import FileHandle, write_all
from suiro.log.transaction_index import AbortedTransaction, TransactionIndex
from suiro.protocol.compression import NONE, compress, decompress
from suiro.protocol.crc32c import crc32c
from suiro.protocol.record_batch import HEADER_SIZE, BatchHeader, pack_header, read_header

_SLOT_BYTES = 24
_UNPACKED_BYTES = 16 << 20
_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.generic)


class OffsetMap:
    """The latest offset of each key, for as many keys as the memory allows."""

    def __init__(self, *, memory_bytes: int, load_factor: float) -> None:
        slots = max(memory_bytes // _SLOT_BYTES, 16)
        self.most = min(int(slots * load_factor), slots - 1)
        # Zeroed memory is the operating system's until a page is used: a small log costs little.
        self.lows = np.zeros(slots, np.uint64)
        self.highs = np.zeros(slots, np.uint64)
        self.offsets = np.zeros(slots, np.int64)
        secret = np.frombuffer(os.urandom(16), np.uint64)
        self.secret: tuple[np.uint64, np.uint64] = (secret[0], secret[1])
        self.state = np.array([kernels.OK, 0, 0, -1], np.int64)

    @property
    def keys(self) -> int:
        return int(self.state[2])

    @property
    def latest_offset(self) -> int:
        return int(self.state[3])

    def advance(self, offset: int) -> None:
        self.state[3] = max(self.latest_offset, offset)


class Throttle:
    """Keeps what is read and written under a rate by sleeping. `sleep` and `clock` are the tests' to replace."""

    def __init__(
        self,
        bytes_per_second: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = bytes_per_second
        self._sleep = sleep
        self._clock = clock
        self._begun = clock()
        self._bytes = 0

    def spend(self, count: int) -> None:
        self._bytes += count
        ahead = self._bytes / self._rate - (self._clock() - self._begun)
        if ahead > 0.001:
            self._sleep(ahead)


@dataclass(slots=True)
class _Judge:
    """What `scan` carries from batch to batch: transactions met, and the tables that it looks things up in."""

    aborted: _Int64s
    last_of_producers: _Int64s
    round_end: int
    now_ms: int
    seen: _Int64s = field(default_factory=lambda: np.empty((64, 2), np.int64))
    seen_count: int = 0


@dataclass(slots=True)
class _Counts:
    bytes_read: int = 0
    bytes_written: int = 0
    records_kept: int = 0


def clean(job: CleaningJob, *, throttle: Throttle | None = None) -> Iterator[GroupCleaned | Cleaned]:
    """Clean one log. Each `GroupCleaned` may be put in place before the next is asked for; `Cleaned` comes last.

    Raises CorruptRecordError where the log holds what cannot be read, and OSError.
    """
    throttle = throttle or Throttle(job.settings.max_bytes_per_second)
    aborted = _aborted(job.transaction_indexes)
    producers = np.array(sorted(job.last_of_producers), np.int64).reshape(-1, 3)
    table = np.array([(a.producer_id, a.first_offset, a.last_offset) for a in aborted], np.int64).reshape(
        -1, 3
    )

    def judge() -> _Judge:
        return _Judge(
            _read_only(table),
            _read_only(producers),
            round_end=job.first_uncleanable_offset,
            now_ms=job.now_ms,
        )

    counts = _Counts()
    offset_map = OffsetMap(
        memory_bytes=job.settings.dedupe_buffer_bytes, load_factor=job.settings.load_factor
    )
    _build(job, offset_map, judge(), counts, throttle)
    end_offset = offset_map.latest_offset + 1
    groups = groups_of(
        [source for source in job.sources if source.base_offset < end_offset],
        segment_bytes=job.segment_bytes,
        segment_index_bytes=job.segment_index_bytes,
        first_uncleanable_offset=job.first_uncleanable_offset,
    )
    across = judge()
    for group in groups:
        _clean_group(job, group, offset_map, across, aborted, counts, throttle)
        yield GroupCleaned(bases=tuple(source.base_offset for source in group))
    yield Cleaned(
        end_offset=end_offset,
        bytes_read=counts.bytes_read,
        bytes_written=counts.bytes_written,
        records_kept=counts.records_kept,
        keys=offset_map.keys,
    )


def _aborted(paths: Sequence[Path]) -> list[AbortedTransaction]:
    return sorted({entry for path in paths for entry in TransactionIndex(path).entries})


# The keys


def _build(
    job: CleaningJob, offset_map: OffsetMap, judge: _Judge, counts: _Counts, throttle: Throttle
) -> None:
    """Kafka's buildOffsetMap: as much of the dirty part as the map takes."""
    for number, source in enumerate(job.sources):
        later = job.sources[number + 1].base_offset if number + 1 < len(job.sources) else None
        end = job.first_uncleanable_offset if later is None else later
        if end <= job.first_dirty_offset:
            continue
        for data, rows in _chunks(job, source, judge, throttle):
            counts.bytes_read += len(data)
            rows[rows[:, kernels.LAST_OFFSET] < job.first_dirty_offset, kernels.VERDICT] = kernels.KEEP
            for some, unpacked in _unpacked(data, rows):
                kernels.index_keys(
                    data,
                    unpacked,
                    some,
                    job.first_dirty_offset,
                    offset_map.most,
                    *offset_map.secret,
                    offset_map.lows,
                    offset_map.highs,
                    offset_map.offsets,
                    offset_map.state,
                )
                if offset_map.state[0] == kernels.MAP_FULL:
                    return
                _check(int(offset_map.state[0]), some, int(offset_map.state[1]))
        # Behind the last batch there may be offsets without any.
        offset_map.advance(end - 1)


# The survivors


def _clean_group(
    job: CleaningJob,
    group: Sequence[SegmentSource],
    offset_map: OffsetMap,
    judge: _Judge,
    aborted: Sequence[AbortedTransaction],
    counts: _Counts,
    throttle: Throttle,
) -> None:
    target = _CleanedSegment(job, group[0].base_offset)
    try:
        for source in group:
            for data, rows in _chunks(job, source, judge, throttle):
                counts.bytes_read += len(data)
                for row in np.flatnonzero(rows[:, kernels.ABORTED] >= 0).tolist():
                    target.aborted.append(aborted[rows[row, kernels.ABORTED]])
                for some, unpacked in _unpacked(data, rows):
                    written, records = _filter(job, offset_map, data, unpacked, some, target)
                    counts.bytes_written += written
                    counts.records_kept += records
                    throttle.spend(written)
        target.finish()
        last = job.directory / f"{group[-1].base_offset:020d}.log"
        modified = last.stat().st_mtime_ns
        os.utime(target.path(".log"), ns=(modified, modified))
    except BaseException:
        target.remove()
        raise


def _filter(
    job: CleaningJob,
    offset_map: OffsetMap,
    data: _Bytes,
    unpacked: _Bytes,
    rows: _Int64s,
    target: _CleanedSegment,
) -> tuple[int, int]:
    counts = np.maximum(rows[:, kernels.COUNT], 0)  # that of a batch that is not looked into may lie
    payloads = rows[:, kernels.PAYLOAD_END] - rows[:, kernels.PAYLOAD]
    rewritten = HEADER_SIZE + payloads + kernels.MAX_RECORD_GROWTH * counts
    room = np.maximum(rows[:, kernels.SIZE], rewritten)
    out = np.empty(int(room.sum()), np.uint8)
    keep = np.empty(int(counts.max()), np.uint8)
    kept = np.empty((len(rows), kernels.OUT_COLUMNS), np.int64)
    result = np.zeros(5, np.int64)
    kernels.filter_batches(
        data,
        unpacked,
        rows,
        offset_map.latest_offset,
        job.now_ms,
        job.delete_retention_ms,
        *offset_map.secret,
        offset_map.lows,
        offset_map.highs,
        offset_map.offsets,
        keep,
        out,
        kept,
        result,
    )
    status, row, count, records, _ = result.tolist()
    _check(status, rows, row)
    kept = kept[:count]
    if count == 0:
        return 0, 0
    sizes = kept[:, kernels.OUT_END] - kept[:, kernels.OUT_START]
    buffers: list[bytes | memoryview] = []
    place = 0
    view = out.data
    for packed in np.flatnonzero(kept[:, kernels.OUT_PACK]).tolist():
        start, end = int(kept[packed, kernels.OUT_START]), int(kept[packed, kernels.OUT_END])
        batch = _packed(data, rows, kept[packed], view[start:end])
        sizes[packed] = len(batch)
        if start > place:
            buffers.append(view[place:start])
        buffers.append(batch)
        place = end
    end = int(kept[-1, kernels.OUT_END])
    if end > place:
        buffers.append(view[place:end])
    batches = np.stack(
        (
            sizes,
            rows[kept[:, kernels.OUT_ROW], kernels.LAST_OFFSET],
            kept[:, kernels.OUT_MAX_TIMESTAMP],
        ),
        axis=1,
    )
    target.append(buffers, batches)
    return int(sizes.sum()), records


def _packed(data: _Bytes, rows: _Int64s, kept: _Int64s, records: memoryview) -> bytes:
    """A compressed batch of the records that stay."""
    position = int(rows[kept[kernels.OUT_ROW], kernels.POSITION])
    old = read_header(data.data, position)
    payload = compress(old.compression, records)
    header: BatchHeader = replace(
        old,
        length=old.length - old.size + HEADER_SIZE + len(payload),
        attributes=old.attributes | (kernels.DELETE_HORIZON if kept[kernels.OUT_HORIZON] else 0),
        base_timestamp=int(kept[kernels.OUT_BASE_TIMESTAMP]),
        max_timestamp=int(kept[kernels.OUT_MAX_TIMESTAMP]),
        count=int(kept[kernels.OUT_COUNT]),
    )
    return pack_header(header, crc_tail=crc32c(payload)) + payload


class _CleanedSegment:
    """The four files of a segment that nobody reads yet."""

    def __init__(self, job: CleaningJob, base_offset: int) -> None:
        self._stem = job.directory / f"{base_offset:020d}"
        self._base_offset = base_offset
        self._interval_bytes = job.index_interval_bytes
        self._size = 0
        # See `index_batches`; the last time entry of a segment without one is "before any time".
        self._state = np.array([0, 0, -1, base_offset, -1, 0, 0], np.int64)
        self.aborted: list[AbortedTransaction] = []
        self.remove()
        self._log = _new_file(self.path(".log"))
        self._offset_index = bytearray()
        self._time_index = bytearray()

    def path(self, suffix: str) -> Path:
        return self._stem.with_name(self._stem.name + suffix + CLEANED_SUFFIX)

    def append(self, buffers: Sequence[bytes | memoryview], batches: _Int64s) -> None:
        size = int(batches[:, 0].sum())
        if self._size + size > MAX_INT:
            raise CorruptRecordError(f"{self.path('.log')} would be larger than a segment can be")
        for buffer in buffers:  # One by one: writev takes no more than 1,024 at a time.
            write_all(self._log, [buffer], self._size, len(buffer))
            self._size += len(buffer)
        offset_entries = np.empty((len(batches), 2), np.int64)
        time_entries = np.empty((len(batches), 2), np.int64)
        kernels.index_batches(
            _read_only(batches),
            self._base_offset,
            self._interval_bytes,
            offset_entries,
            time_entries,
            self._state,
        )
        self._offset_index += offset_entries[: self._state[5]].astype(">i4").tobytes()
        self._time_index += _time_rows(time_entries[: self._state[6]])

    def finish(self) -> None:
        """The last time entry, as of every sealed segment; then all of it onto the disk."""
        _, _, largest, offset, last_entry, _, _ = self._state.tolist()
        if largest > last_entry:
            self._time_index += _time_rows(np.array([[largest, offset - self._base_offset]], np.int64))
        handles = [self._log]
        for suffix, content in ((".index", self._offset_index), (".timeindex", self._time_index)):
            handle = _new_file(self.path(suffix))
            if content:
                write_all(handle, [bytes(content)], 0, len(content))
            handles.append(handle)
        if self.aborted:
            transactions = TransactionIndex(self.path(".txnindex"))
            for entry in self.aborted:
                transactions.entries.append(entry)
            transactions.flush()
            handles += transactions.handles_to_sync()
        for handle in handles:
            os.fsync(handle)

    def remove(self) -> None:
        for suffix in _SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(suffix))


def _new_file(path: Path) -> FileHandle:
    return FileHandle(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))


def _time_rows(entries: _Int64s) -> bytes:
    rows = np.empty(len(entries), dtype=[("timestamp", ">i8"), ("offset", ">i4")])
    rows["timestamp"], rows["offset"] = entries[:, 0], entries[:, 1]
    return rows.tobytes()


# Reading


def _chunks(
    job: CleaningJob, source: SegmentSource, judge: _Judge, throttle: Throttle
) -> Iterator[tuple[_Bytes, _Int64s]]:
    """(bytes, their judged batches) of a segment, piece by piece; a piece holds whole batches, at least one."""
    path = job.directory / f"{source.base_offset:020d}.log"
    handle = FileHandle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    position, wanted = 0, job.settings.io_buffer_bytes
    while position < source.size:
        data = os.pread(handle, min(wanted, source.size - position), position)
        throttle.spend(len(data))
        whole, rows = _scan(_read_only(np.frombuffer(data, np.uint8)), judge)
        if whole:
            position += whole
            wanted = job.settings.io_buffer_bytes
            yield _read_only(np.frombuffer(data, np.uint8)[:whole]), rows
            continue
        size = read_header(data).size if len(data) >= HEADER_SIZE else HEADER_SIZE
        if size <= len(data) or size > source.size - position:
            raise CorruptRecordError(f"{path}: no whole batch at byte {position}")
        wanted = size


def _scan(data: _Bytes, judge: _Judge) -> tuple[int, _Int64s]:
    """(bytes of whole batches, their rows)."""
    parts: list[_Int64s] = []
    at = 0
    while True:
        rest = _read_only(data[at:])
        table = np.empty((len(rest) // HEADER_SIZE + 1, kernels.BATCH_COLUMNS), np.int64)
        result = np.array([0, 0, 0, judge.seen_count], np.int64)
        kernels.scan(
            rest,
            judge.aborted,
            judge.last_of_producers,
            judge.round_end,
            judge.now_ms,
            judge.seen,
            table,
            result,
        )
        status, rows, looked_at, judge.seen_count = result.tolist()
        part = table[:rows]
        part[:, [kernels.POSITION, kernels.PAYLOAD, kernels.PAYLOAD_END]] += at
        parts.append(part)
        at += looked_at
        if status == kernels.GROW:
            judge.seen = np.concatenate((judge.seen, np.empty_like(judge.seen)))
            continue
        if status != kernels.OK:
            read_header(data.data, at)  # says what is wrong
            raise CorruptRecordError(f"the batch at byte {at} of the piece has a control record that is none")
        rows_of_all = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return at, np.ascontiguousarray(rows_of_all)


def _unpacked(data: _Bytes, rows: _Int64s) -> Iterator[tuple[_Int64s, _Bytes]]:
    """The rows, a share at a time, with the unpacked records of those that are compressed."""
    counts = rows[:, kernels.COUNT]
    looked_into = (rows[:, kernels.VERDICT] == kernels.FILTER) & (counts > 0)
    packed = looked_into & (rows[:, kernels.ATTRIBUTES] & 7 != NONE)
    parts: list[bytes] = []
    first = size = 0
    for row in np.flatnonzero(packed).tolist():
        start, end = int(rows[row, kernels.PAYLOAD]), int(rows[row, kernels.PAYLOAD_END])
        payload = decompress(int(rows[row, kernels.ATTRIBUTES]) & 7, data[start:end].data)
        rows[row, kernels.UNPACKED] = 1
        rows[row, kernels.PAYLOAD] = size
        size += len(payload)
        rows[row, kernels.PAYLOAD_END] = size
        parts.append(payload)
        if size >= _UNPACKED_BYTES:
            yield _checked(rows[first : row + 1]), _joined(parts)
            parts, first, size = [], row + 1, 0
    if first < len(rows):
        yield _checked(rows[first:]), _joined(parts)


def _joined(parts: Sequence[bytes]) -> _Bytes:
    return _read_only(np.frombuffer(b"".join(parts), np.uint8))


def _checked(rows: _Int64s) -> _Int64s:
    counts, sizes = rows[:, kernels.COUNT], rows[:, kernels.PAYLOAD_END] - rows[:, kernels.PAYLOAD]
    read = rows[:, kernels.VERDICT] != kernels.DISCARD
    lying = read & ((counts < 0) | (counts * kernels.MIN_RECORD_SIZE > sizes))
    if lying.any():
        row = int(np.argmax(lying))
        raise CorruptRecordError(
            f"the batch at offset {rows[row, kernels.BASE_OFFSET]} claims {counts[row]} records"
            f" in {sizes[row]} bytes"
        )
    return _read_only(rows)


def _check(status: int, rows: _Int64s, row: int) -> None:
    if status == kernels.OK:
        return
    what = "has a wrong CRC" if status == kernels.BAD_CRC else "holds bytes that are no records"
    raise CorruptRecordError(f"the batch at offset {rows[row, kernels.BASE_OFFSET]} {what}")


def _read_only(array: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    array = np.ascontiguousarray(array).view()
    array.flags.writeable = False
    return array
