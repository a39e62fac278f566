"""Cleaning with compiled loops: the work for each 512 KB and for each compressed batch.

The work per record is in `cleaning_kernels`. `plain_cleaning` does the same where numba and NumPy are not installed,
and the tests hold both to the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from suiro.errors import CorruptRecordError
from suiro.log import cleaning_kernels as kernels
from suiro.log.cleaned_segment import CleanedSegment, Counts, Throttle, end_of, pieces, strays
from suiro.log.compaction import CleaningJob, SegmentSource
from suiro.log.transaction_index import AbortedTransaction
from suiro.protocol.compression import NONE, compress, decompress
from suiro.protocol.crc32c import crc32c
from suiro.protocol.record_batch import (
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    MIN_RECORD_SIZE,
    BatchHeader,
    pack_header,
    read_header,
)

_SLOT_BYTES = 24
_UNPACKED_BYTES = 16 << 20

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.generic)


class OffsetMap:
    """The latest offset of each key, for as many keys as the memory allows."""

    def __init__(self, *, memory_bytes: int, load_factor: float) -> None:
        slots = max(memory_bytes // _SLOT_BYTES, 16)
        self.most = min(int(slots * load_factor), slots - 1)
        # Zeroed pages take no memory until they are used, so a small log costs little.
        lows, highs = np.zeros(slots, np.uint64), np.zeros(slots, np.uint64)
        offsets = np.zeros(slots, np.int64)
        secret = np.frombuffer(os.urandom(16), np.uint64)
        self.table = (secret[0], secret[1], lows, highs, offsets)
        """The secret of the hashes, and the arrays of the map, as kernels take them."""
        self.state = np.array([kernels.OK, 0, 0, -1], np.int64)

    @property
    def keys(self) -> int:
        return int(self.state[2])

    @property
    def latest_offset(self) -> int:
        return int(self.state[3])

    def advance(self, offset: int) -> None:
        self.state[3] = max(self.latest_offset, offset)


@dataclass(slots=True)
class _Judge:
    """The state of `scan` from batch to batch: the transactions met, and the tables to look up."""

    aborted: _Int64s
    last_of_producers: _Int64s
    round_end: int
    now_ms: int
    seen: _Int64s
    seen_count: int


class CompiledCleaning:
    """A `Cleaning` of one job."""

    def __init__(
        self, job: CleaningJob, aborted: Sequence[AbortedTransaction], counts: Counts, throttle: Throttle
    ) -> None:
        self._job = job
        self._aborted = aborted
        self._counts = counts
        self._throttle = throttle
        self._map = OffsetMap(memory_bytes=job.settings.dedupe_buffer_bytes, load_factor=job.settings.load_factor)
        self._across = self._judge()

    @property
    def keys(self) -> int:
        return self._map.keys

    @property
    def latest_offset(self) -> int:
        return self._map.latest_offset

    def collect_keys(self) -> None:
        job, offset_map, judge = self._job, self._map, self._judge()
        for source in job.sources:
            end = end_of(job, source)
            if end <= job.first_dirty_offset:
                continue
            for data, rows in self._chunks(source, judge):
                rows[rows[:, kernels.LAST_OFFSET] < job.first_dirty_offset, kernels.VERDICT] = kernels.KEEP
                for some, unpacked in _unpacked(data, rows):
                    kernels.index_keys(
                        data,
                        unpacked,
                        some,
                        job.first_dirty_offset,
                        offset_map.most,
                        *offset_map.table,
                        offset_map.state,
                    )
                    if offset_map.state[0] == kernels.MAP_FULL:
                        return
                    _check(int(offset_map.state[0]), some, int(offset_map.state[1]))
            # Behind the last batch there may be offsets without any.
            offset_map.advance(end - 1)

    def clean_group(self, group: Sequence[SegmentSource]) -> None:
        target = CleanedSegment(self._job, group[0].base_offset)
        index = _Index(self._job, group[0].base_offset)
        with target.filled(group):
            for source in group:
                for data, rows in self._chunks(source, self._across):
                    for row in np.flatnonzero(rows[:, kernels.ABORTED] >= 0).tolist():
                        target.aborted.append(self._aborted[rows[row, kernels.ABORTED]])
                    for some, unpacked in _unpacked(data, rows):
                        self._filter(data, unpacked, some, target, index)
            target.add_entries(b"", index.last_time_entry())

    def _judge(self) -> _Judge:
        rows = [(one.producer_id, one.first_offset, one.last_offset) for one in self._aborted]
        in_tier = [(one, kernels.OF_ABORTED) for one in self._job.aborted_in_tier(self._aborted)]
        seen = np.empty((len(in_tier) + 64, 2), np.int64)
        seen[: len(in_tier)] = np.array(in_tier, np.int64).reshape(-1, 2)
        return _Judge(
            _read_only(np.array(rows, np.int64).reshape(-1, 3)),
            _read_only(np.array(sorted(self._job.last_of_producers), np.int64).reshape(-1, 3)),
            round_end=self._job.first_uncleanable_offset,
            now_ms=self._job.now_ms,
            seen=seen,
            seen_count=len(in_tier),
        )

    def _chunks(self, source: SegmentSource, judge: _Judge) -> Iterator[tuple[_Bytes, _Int64s]]:
        """(bytes, their judged batches) of a segment, piece by piece; a piece holds whole batches, at least one."""
        end = end_of(self._job, source)
        for data, rows in pieces(self._job, source, self._throttle, partial(_scan, judge)):
            first, last = rows[:, kernels.BASE_OFFSET], rows[:, kernels.LAST_OFFSET]
            stray = (first < source.base_offset) | (last < first) | (last >= end)
            if stray.any():
                raise strays(int(first[np.argmax(stray)]), source)
            self._counts.bytes_read += len(data)
            yield _as_array(data), rows

    def _filter(self, data: _Bytes, unpacked: _Bytes, rows: _Int64s, target: CleanedSegment, index: _Index) -> None:
        """Write what stays of some batches."""
        counts = np.maximum(rows[:, kernels.COUNT], 0)  # that of a batch that is not looked into may lie
        payloads = rows[:, kernels.PAYLOAD_END] - rows[:, kernels.PAYLOAD]
        rewritten = HEADER_SIZE + payloads + kernels.MAX_RECORD_GROWTH * counts
        room = np.maximum(rows[:, kernels.SIZE], rewritten)
        out = np.empty(int(room.sum()), np.uint8)
        keep = np.empty(int(counts.max()), np.uint8)
        kept = np.empty((len(rows), kernels.OUT_COLUMNS), np.int64)
        result = np.zeros(4, np.int64)
        kernels.filter_batches(
            data,
            unpacked,
            rows,
            self._map.latest_offset,
            self._job.now_ms,
            self._job.delete_retention_ms,
            *self._map.table,
            keep,
            out,
            kept,
            result,
        )
        status, row, count, records = result.tolist()
        _check(status, rows, row)
        if count == 0:
            return
        kept = kept[:count]
        sizes, buffers = _buffers(data, rows, kept, out.data)
        last_offsets = rows[kept[:, kernels.OUT_ROW], kernels.LAST_OFFSET]
        batches = np.stack((sizes, last_offsets, kept[:, kernels.OUT_MAX_TIMESTAMP]), axis=1)
        target.append(buffers)
        target.add_entries(*index.entries(batches))
        written = int(sizes.sum())
        self._counts.bytes_written += written
        self._counts.records_kept += records
        self._throttle.spend(written)


def _buffers(data: _Bytes, rows: _Int64s, kept: _Int64s, out: memoryview) -> tuple[_Int64s, list[bytes | memoryview]]:
    """(size of each batch, the bytes of all) of what `filter_batches` wrote, records to be compressed packed."""
    sizes = kept[:, kernels.OUT_END] - kept[:, kernels.OUT_START]
    buffers: list[bytes | memoryview] = []
    place = 0
    for packed in np.flatnonzero(kept[:, kernels.OUT_PACK]).tolist():
        start, end = int(kept[packed, kernels.OUT_START]), int(kept[packed, kernels.OUT_END])
        batch = _packed(data, rows, kept[packed], out[start:end])
        sizes[packed] = len(batch)
        buffers += [out[place:start], batch] if start > place else [batch]
        place = end
    end = int(kept[-1, kernels.OUT_END])
    if end > place:
        buffers.append(out[place:end])
    return sizes, buffers


def _packed(data: _Bytes, rows: _Int64s, kept: _Int64s, records: memoryview) -> bytes:
    """A compressed batch of the records that stay."""
    position = int(rows[kept[kernels.OUT_ROW], kernels.POSITION])
    old = read_header(data.data, position)
    payload = compress(old.compression, records)
    header: BatchHeader = replace(
        old,
        length=old.length - old.size + HEADER_SIZE + len(payload),
        attributes=old.attributes | (DELETE_HORIZON_BIT if kept[kernels.OUT_HORIZON] else 0),
        base_timestamp=int(kept[kernels.OUT_BASE_TIMESTAMP]),
        max_timestamp=int(kept[kernels.OUT_MAX_TIMESTAMP]),
        count=int(kept[kernels.OUT_COUNT]),
    )
    return pack_header(header, crc_tail=crc32c(payload)) + payload


class _Index:
    """The entries of both indexes of the segment that is written."""

    def __init__(self, job: CleaningJob, base_offset: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = job.index_interval_bytes
        # See `index_batches`; the last time entry of a segment without one is "before any time".
        self._state = np.array([0, 0, -1, base_offset, -1, 0, 0], np.int64)

    def entries(self, batches: _Int64s) -> tuple[bytes, bytes]:
        """Of offsets and of times."""
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
        offsets = offset_entries[: self._state[5]].astype(">i4").tobytes()
        return offsets, _time_rows(time_entries[: self._state[6]])

    def last_time_entry(self) -> bytes:
        """As every sealed segment ends; empty where it is there already."""
        _, _, largest, offset, last_entry, _, _ = self._state.tolist()
        if largest <= last_entry:
            return b""
        return _time_rows(np.array([[largest, offset - self._base_offset]], np.int64))


def _time_rows(entries: _Int64s) -> bytes:
    rows = np.empty(len(entries), dtype=[("timestamp", ">i8"), ("offset", ">i4")])
    rows["timestamp"], rows["offset"] = entries[:, 0], entries[:, 1]
    return rows.tobytes()


def _as_array(data: bytes | memoryview) -> _Bytes:
    return _read_only(np.frombuffer(data, np.uint8))


def _scan(judge: _Judge, piece: bytes) -> tuple[int, _Int64s]:
    """(bytes of whole batches, their rows)."""
    data = _as_array(piece)
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
    inspected = (rows[:, kernels.VERDICT] == kernels.FILTER) & (counts > 0)
    packed = inspected & (rows[:, kernels.ATTRIBUTES] & 7 != NONE)
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
    # What is kept as it is stays compressed, and its records may well be more than its bytes.
    is_plain = (rows[:, kernels.UNPACKED] != 0) | (rows[:, kernels.ATTRIBUTES] & 7 == NONE)
    lying = read & ((counts < 0) | (is_plain & (counts * MIN_RECORD_SIZE > sizes)))
    if lying.any():
        row = int(np.argmax(lying))
        raise CorruptRecordError(
            f"the batch at offset {rows[row, kernels.BASE_OFFSET]} claims {counts[row]} records in {sizes[row]} bytes"
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
