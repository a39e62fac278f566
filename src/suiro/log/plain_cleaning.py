"""Cleaning in plain Python, if numba and NumPy are not installed: the same bytes, about twenty times slower.

Always true: a log becomes the same as with `compiled_cleaning`, and the same is refused as damaged. Only the map of
keys takes more memory for each key, so that a round may end earlier. No record becomes an object.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from suiro.errors import CorruptRecordError
from suiro.log.cleaned_segment import CleanedSegment, Counts, Throttle, end_of, pieces, strays
from suiro.log.compaction import CleaningJob, SegmentSource
from suiro.log.index import OFFSET_ENTRY, TIME_ENTRY
from suiro.log.transaction_index import AbortedTransaction
from suiro.protocol.compression import NONE, compress, decompress
from suiro.protocol.crc32c import BytesLike, crc32c
from suiro.protocol.fields import put_varint
from suiro.protocol.plain_loops import int64, varlong
from suiro.protocol.record_batch import (
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MIN_RECORD_SIZE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    iter_headers,
    pack_header,
)

_KEY_BYTES = 192
"""Memory for a key in the map: its hash (16 bytes, as an object 49), its offset (32), and their place in the dict."""
_LEAST_KEYS = 16
_KIND = struct.Struct(">H")
_ABORT, _COMMIT = 0, 1


@dataclass(slots=True)
class _Judged:
    """A batch of a piece, judged by its header. `marks` is the aborted transaction that its marker ends."""

    header: BatchHeader
    position: int
    discarded: bool = False  # all its records
    inspected: bool = False
    keep_empty: bool = False
    empty_transaction: bool = False
    marks: AbortedTransaction | None = None


@dataclass(slots=True)
class _Kept:
    """The records of a batch that stay."""

    places: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """Of each record: from, to; place, value and end of the timestamp delta."""
    first_timestamp: int = NO_TIMESTAMP
    largest_timestamp: int = NO_TIMESTAMP
    has_tombstone: bool = False


class PlainCleaning:
    """A `Cleaning` of one job."""

    def __init__(
        self, job: CleaningJob, aborted: Sequence[AbortedTransaction], counts: Counts, throttle: Throttle
    ) -> None:
        self._job = job
        self._aborted = _by_producer(aborted)
        self._in_tier = job.aborted_in_tier(aborted)
        self._counts = counts
        self._throttle = throttle
        self._offsets: dict[bytes, int] = {}
        self._secret = os.urandom(16)
        slots = max(job.settings.dedupe_buffer_bytes // _KEY_BYTES, _LEAST_KEYS)
        self._most = min(int(slots * job.settings.load_factor), slots - 1)
        self._latest_offset = -1
        self._across = self._judge()

    @property
    def keys(self) -> int:
        return len(self._offsets)

    @property
    def latest_offset(self) -> int:
        return self._latest_offset

    def collect_keys(self) -> None:
        job, judge = self._job, self._judge()
        for source in job.sources:
            end = end_of(job, source)
            if end <= job.first_dirty_offset:
                continue
            for data, batches in self._pieces(source, judge):
                self._counts.bytes_read += len(data)
                for batch in batches:
                    if not self._take_keys(data, batch):
                        return
            # Behind the last batch there may be offsets without any.
            self._latest_offset = max(self._latest_offset, end - 1)

    def clean_group(self, group: Sequence[SegmentSource]) -> None:
        job = self._job
        target = CleanedSegment(job, group[0].base_offset)
        index = _Index(group[0].base_offset, job.index_interval_bytes)
        with target.filled(group):
            for source in group:
                for data, batches in self._pieces(source, self._across):
                    self._counts.bytes_read += len(data)
                    for batch in batches:
                        if batch.marks is not None:
                            target.aborted.append(batch.marks)
                        made = self._filtered(data, batch)
                        if made is None:
                            continue
                        written, max_timestamp, records = made
                        target.append([written])
                        target.add_entries(*index.entries(len(written), batch.header.last_offset, max_timestamp))
                        self._counts.bytes_written += len(written)
                        self._counts.records_kept += records
                        self._throttle.spend(len(written))
            target.add_entries(b"", index.last_time_entry())

    def _pieces(self, source: SegmentSource, judge: _Judge) -> Iterator[tuple[memoryview, list[_Judged]]]:
        end = end_of(self._job, source)
        for data, batches in pieces(self._job, source, self._throttle, judge.scan):
            for batch in batches:
                header = batch.header
                if not source.base_offset <= header.base_offset <= header.last_offset < end:
                    raise strays(header.base_offset, source)
            yield data, batches

    def _judge(self) -> _Judge:
        job = self._job
        return _Judge(
            aborted=self._aborted,
            last_of_producers={one: (offset, epoch) for one, offset, epoch in sorted(job.last_of_producers)},
            round_end=job.first_uncleanable_offset,
            now_ms=job.now_ms,
            seen={(producer_id, True) for producer_id in self._in_tier},
        )

    def _take_keys(self, data: memoryview, batch: _Judged) -> bool:
        """Returns False if the map is full."""
        header, start = batch.header, self._job.first_dirty_offset
        if batch.inspected and header.last_offset >= start:
            payload, at = _payload(data, batch), 0
            end = len(payload)
            for _ in range(header.count):
                at, _, _, _, offset_delta, key, key_size, _ = _record(payload, at, end)
                if at < 0:
                    raise _no_records(header)
                offset = int64(header.base_offset + offset_delta)
                if key_size < 0 or offset < start:
                    continue
                if len(self._offsets) >= self._most:
                    return False
                self._offsets[self._hash(payload[key : key + key_size])] = offset
                self._latest_offset = offset
        if header.last_offset >= start:
            self._latest_offset = max(self._latest_offset, header.last_offset)
        return True

    def _filtered(self, data: memoryview, batch: _Judged) -> tuple[bytes, int, int] | None:
        """Returns (the batch of the records that stay, its largest timestamp, their number), or None if it goes."""
        header, job = batch.header, self._job
        payload = b"" if batch.discarded else _payload(data, batch)
        kept = _Kept() if batch.discarded else self._kept(payload, batch)
        count = len(kept.places)
        if count == 0:
            return (_empty(header), header.max_timestamp, 0) if batch.keep_empty else None
        new_horizon = (kept.has_tombstone or batch.empty_transaction) and not header.has_delete_horizon
        whole = data[batch.position : batch.position + header.size]
        if count == header.count and not new_horizon:
            return bytes(whole), header.max_timestamp, count
        # A batch that gets a new CRC must have had the right one: nothing damaged may pass for whole.
        if crc32c(whole[CRC_START:]) != header.crc:
            raise CorruptRecordError(f"the batch at offset {header.base_offset} has a wrong CRC")
        base_timestamp = kept.first_timestamp
        if header.has_delete_horizon:
            base_timestamp = header.base_timestamp
        elif new_horizon:
            base_timestamp = job.now_ms + job.delete_retention_ms
        packed = compress(header.compression, _rewritten(payload, kept.places, header, base_timestamp))
        new = replace(
            header,
            length=HEADER_SIZE - LOG_OVERHEAD + len(packed),
            attributes=header.attributes | (DELETE_HORIZON_BIT if new_horizon else 0),
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if header.is_log_append_time else kept.largest_timestamp,
            count=count,
        )
        return pack_header(new, crc_tail=crc32c(packed)) + packed, new.max_timestamp, count

    def _kept(self, payload: bytes, batch: _Judged) -> _Kept:
        """Kafka's shouldRetainRecord, for each record of a batch."""
        header, kept = batch.header, _Kept()
        at, end = 0, len(payload)
        for _ in range(header.count):
            start = at
            at, delta_at, timestamp_delta, rest, offset_delta, key, key_size, value_size = _record(payload, at, end)
            if at < 0:
                raise _no_records(header)
            offset = int64(header.base_offset + offset_delta)
            if batch.inspected and offset <= self._latest_offset:
                if key_size < 0:
                    continue
                latest = self._offsets.get(self._hash(payload[key : key + key_size]))
                if latest is not None and offset < latest:
                    continue
                if value_size < 0 and header.has_delete_horizon and self._job.now_ms >= header.base_timestamp:
                    continue
            timestamp = (
                header.max_timestamp if header.is_log_append_time else int64(header.base_timestamp + timestamp_delta)
            )
            if not kept.places:
                kept.first_timestamp = timestamp
            kept.largest_timestamp = max(kept.largest_timestamp, timestamp)
            kept.has_tombstone |= value_size < 0
            kept.places.append((start, at, delta_at, timestamp_delta, rest))
        if at != end:
            raise _no_records(header)
        return kept

    def _hash(self, key: BytesLike) -> bytes:
        """With a secret of this run, so that nobody can make two keys collide."""
        return blake2b(key, digest_size=16, key=self._secret).digest()


def _empty(header: BatchHeader) -> bytes:
    """A batch without records, which keeps the place, the epochs and the sequence of this one."""
    return pack_header(
        replace(
            header,
            length=HEADER_SIZE - LOG_OVERHEAD,
            attributes=header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT),
            base_timestamp=NO_TIMESTAMP,
            count=0,
        ),
        crc_tail=crc32c(b""),
    )


def _rewritten(
    payload: bytes,
    places: Sequence[tuple[int, int, int, int, int]],
    header: BatchHeader,
    base_timestamp: int,
) -> bytes:
    """Returns the records that stay, their timestamps counted from another one."""
    out = bytearray()
    for start, end, delta_at, timestamp_delta, rest in places:
        if base_timestamp == header.base_timestamp or header.is_log_append_time:
            out += payload[start:end]
            continue
        delta = bytearray()
        put_varint(delta, int64(header.base_timestamp + timestamp_delta - base_timestamp))
        put_varint(out, 1 + len(delta) + end - rest)
        out.append(payload[delta_at - 1])
        out += delta
        out += payload[rest:end]
    return bytes(out)


@dataclass(slots=True)
class _Judge:
    """The state from batch to batch: the transactions met (CleanedTransactionMetadata), and the tables to look up.

    `seen` holds the (producer, is aborted) pairs of which a batch was met since the last marker.
    """

    aborted: dict[int, list[AbortedTransaction]]
    last_of_producers: dict[int, tuple[int, int]]
    round_end: int
    now_ms: int
    seen: set[tuple[int, bool]]

    def scan(self, data: bytes) -> tuple[int, list[_Judged]]:
        """(bytes of whole batches, the batches)."""
        found = [self._judged(data, header, at) for at, header in iter_headers(data)]
        return sum(batch.header.size for batch in found), found

    def _judged(self, data: bytes, header: BatchHeader, position: int) -> _Judged:
        batch = _Judged(header, position)
        if header.is_control:
            goes = self._marker_goes(data, batch)
            batch.empty_transaction = goes
            batch.discarded = goes and header.has_delete_horizon and header.base_timestamp <= self.now_ms
        else:
            if header.is_transactional:
                aborted = self._aborted_at(header.producer_id, header.last_offset)
                batch.discarded = aborted is not None
                self.seen.add((header.producer_id, batch.discarded))
            batch.inspected = not batch.discarded
        batch.keep_empty = header.last_offset + 1 == self.round_end
        if header.producer_id >= 0 and header.producer_id in self.last_of_producers:
            offset, epoch = self.last_of_producers[header.producer_id]
            if offset >= 0:
                batch.keep_empty |= offset == header.last_offset
            else:
                batch.keep_empty |= header.is_control and epoch == header.producer_epoch
        return batch

    def _marker_goes(self, data: bytes, batch: _Judged) -> bool:
        """Whether nothing is left of the transaction that it ends."""
        header = batch.header
        if header.count <= 0:
            return True  # An empty control batch was cleaned before.
        start, end = batch.position + HEADER_SIZE, batch.position + header.size
        after, key, key_size = -1, 0, 0
        if header.compression == NONE:
            after, _, _, _, _, key, key_size, _ = _record(data, start, end)
        if after < 0 or key_size < _KIND.size + 2:
            raise CorruptRecordError(
                f"the batch at byte {batch.position} of the piece has a control record that is none"
            )
        (kind,) = _KIND.unpack_from(data, key + 2)
        if kind not in (_ABORT, _COMMIT):
            return False
        has_data = (header.producer_id, kind == _ABORT) in self.seen
        self.seen.discard((header.producer_id, kind == _ABORT))
        if has_data and kind == _ABORT:
            batch.marks = self._aborted_at(header.producer_id, header.last_offset)
        return not has_data

    def _aborted_at(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        known = self.aborted.get(producer_id, [])
        place = bisect_right(known, offset, key=lambda one: one.first_offset)
        return known[place - 1] if place and known[place - 1].last_offset >= offset else None


def _by_producer(aborted: Sequence[AbortedTransaction]) -> dict[int, list[AbortedTransaction]]:
    found: dict[int, list[AbortedTransaction]] = {}
    for one in aborted:
        found.setdefault(one.producer_id, []).append(one)
    return found


def _payload(data: memoryview, batch: _Judged) -> bytes:
    """The records' bytes, which have room for as many as the header claims."""
    header = batch.header
    records: BytesLike = data[batch.position + HEADER_SIZE : batch.position + header.size]
    if header.compression != NONE and header.count > 0:
        records = decompress(header.compression, records)
    if header.count < 0 or header.count * MIN_RECORD_SIZE > len(records):
        raise CorruptRecordError(
            f"the batch at offset {header.base_offset} claims {header.count} records in {len(records)} bytes"
        )
    return bytes(records)


class _Index:
    """The entries of both indexes of the segment that is written."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._position = 0
        self._since_entry = 0
        self._largest, self._its_offset = NO_TIMESTAMP, base_offset
        self._last_entry = NO_TIMESTAMP

    def entries(self, size: int, last_offset: int, largest_timestamp: int) -> tuple[bytes, bytes]:
        """Of offsets and of times, for a batch that is written next."""
        if largest_timestamp > self._largest:
            self._largest, self._its_offset = largest_timestamp, last_offset
        offsets = times = b""
        if self._since_entry > self._interval_bytes:
            offsets = OFFSET_ENTRY.pack(last_offset - self._base_offset, self._position)
            times = self.last_time_entry()
            self._last_entry = max(self._last_entry, self._largest)
            self._since_entry = 0
        self._since_entry += size
        self._position += size
        return offsets, times

    def last_time_entry(self) -> bytes:
        """As every sealed segment ends; empty where it is there already."""
        if self._largest <= self._last_entry:
            return b""
        return TIME_ENTRY.pack(self._largest, self._its_offset - self._base_offset)


def _record(data: BytesLike, at: int, end: int) -> tuple[int, int, int, int, int, int, int, int]:
    """As in `cleaning_kernels`: (next record or -1, place of the timestamp delta, its value, place behind it, offset
    delta, key, key size, value size) of the record at `at`; a size below 0 is null."""
    size, at = varlong(data, at, end)
    if at < 0 or size < 1 or size > end - at:
        return _BAD
    after = at + size
    delta_at = at + 1
    timestamp_delta, rest = varlong(data, delta_at, after)
    if rest < 0:
        return _BAD
    offset_delta, at = varlong(data, rest, after)
    if at < 0:
        return _BAD
    key_size, key = varlong(data, at, after)
    if key < 0 or key_size > after - key:
        return _BAD
    value_size, at = varlong(data, key + max(key_size, 0), after)
    if at < 0 or value_size > after - at:
        return _BAD
    return after, delta_at, timestamp_delta, rest, offset_delta, key, key_size, value_size


_BAD = (-1, 0, 0, 0, 0, 0, 0, 0)


def _no_records(header: BatchHeader) -> CorruptRecordError:
    return CorruptRecordError(f"the batch at offset {header.base_offset} holds bytes that are no records")
