"""The rules of cleaning for a batch and its records: which may go, and what is left. `cleaning` calls them.

`KeyMap` goes over the records in plain Python. `compiled_cleaning` does the same with compiled loops, where numba and
NumPy are installed: a log becomes the same, and the same is refused as damaged. Only the map of keys takes more memory
for each key here, so that a round may end earlier. No record becomes an object.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar, NamedTuple

from suiro.errors import CorruptRecordError
from suiro.log.compaction import CleanerSettings, CleaningJob
from suiro.log.transaction_index import AbortedTransaction
from suiro.protocol.compression import NONE
from suiro.protocol.crc32c import BytesLike
from suiro.protocol.fields import int64, put_varint, varlong
from suiro.protocol.record_batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, iter_headers

_LEAST_KEYS = 16
_KIND = struct.Struct(">H")
_ABORT, _COMMIT = 0, 1


@dataclass(slots=True)
class JudgedBatch:
    """A batch of a piece, judged by its header. `marks` is the aborted transaction that its marker ends."""

    header: BatchHeader
    position: int
    discarded: bool = False  # all its records
    inspected: bool = False
    keep_empty: bool = False
    empty_transaction: bool = False
    marks: AbortedTransaction | None = None


@dataclass(slots=True)
class Judge:
    """The state from batch to batch: the transactions met (CleanedTransactionMetadata), and the tables to look up.

    `seen` holds the (producer, is aborted) pairs of which a batch was met since the last marker.
    """

    aborted: dict[int, list[AbortedTransaction]]
    last_of_producers: dict[int, tuple[int, int]]
    round_end: int
    now_ms: int
    seen: set[tuple[int, bool]]

    def scan(self, data: bytes) -> Iterator[JudgedBatch]:
        """The whole batches in some bytes, which may end inside another one."""
        return (self._judged(data, header, at) for at, header in iter_headers(data))

    def _judged(self, data: bytes, header: BatchHeader, position: int) -> JudgedBatch:
        batch = JudgedBatch(header, position)
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

    def _marker_goes(self, data: bytes, batch: JudgedBatch) -> bool:
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


class Left(NamedTuple):
    """The records of a batch that stay. `records` are their bytes, with the timestamps that the batch then has; None if
    none stay, or all as they are."""

    kept: int
    records: BytesLike | None = None
    base_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    new_horizon: bool = False


class KeyMap:
    """The latest offset of each key, for as many keys as the memory allows, and what stays of a batch by it."""

    key_bytes: ClassVar[int] = 192
    """Memory for a key: its hash (16 bytes, as an object 49), its offset (32), and their place in the dict."""

    def __init__(self, settings: CleanerSettings) -> None:
        self.slots = max(settings.dedupe_buffer_bytes // self.key_bytes, _LEAST_KEYS)
        self.most = min(int(self.slots * settings.load_factor), self.slots - 1)
        self.latest_offset = -1
        """The last one whose key is known."""
        self._offsets: dict[bytes, int] = {}
        self._secret = os.urandom(16)

    @property
    def count(self) -> int:
        return len(self._offsets)

    def take(self, records: BytesLike, header: BatchHeader, start: int) -> bool:
        """Note the keys of a batch from an offset on. Returns False if the map is full. Raises CorruptRecordError."""
        data, at = bytes(records), 0
        for _ in range(header.count):
            at, _, _, _, offset_delta, key, key_size, _ = _record(data, at, len(data))
            if at < 0:
                raise no_records(header)
            offset = int64(header.base_offset + offset_delta)
            if key_size < 0 or offset < start:
                continue
            if len(self._offsets) >= self.most:
                return False
            self._offsets[self._hash(data[key : key + key_size])] = offset
            self.latest_offset = offset
        return True

    def left(self, records: BytesLike, batch: JudgedBatch, job: CleaningJob) -> Left:
        """What stays of a batch (Kafka's shouldRetainRecord and filterTo). Raises CorruptRecordError."""
        header, data = batch.header, bytes(records)
        places: list[tuple[int, int, int, int, int]] = []
        """Of each record: from, to; place, value and end of the timestamp delta."""
        first_timestamp = largest_timestamp = NO_TIMESTAMP
        has_tombstone = False
        at = 0
        for _ in range(header.count):
            start = at
            at, delta_at, timestamp_delta, rest, offset_delta, key, key_size, value_size = _record(data, at, len(data))
            if at < 0:
                raise no_records(header)
            if batch.inspected and not self._stays(
                int64(header.base_offset + offset_delta),
                None if key_size < 0 else data[key : key + key_size],
                is_expired=value_size < 0 and header.has_delete_horizon and job.now_ms >= header.base_timestamp,
            ):
                continue
            timestamp = int64(header.base_timestamp + timestamp_delta)
            timestamp = header.max_timestamp if header.is_log_append_time else timestamp
            if not places:
                first_timestamp = timestamp
            largest_timestamp = max(largest_timestamp, timestamp)
            has_tombstone |= value_size < 0
            places.append((start, at, delta_at, timestamp_delta, rest))
        if at != len(data):
            raise no_records(header)
        new_horizon = (has_tombstone or batch.empty_transaction) and not header.has_delete_horizon
        if not places or (len(places) == header.count and not new_horizon):
            return Left(len(places))
        base_timestamp = first_timestamp
        if header.has_delete_horizon:
            base_timestamp = header.base_timestamp
        elif new_horizon:
            base_timestamp = job.now_ms + job.delete_retention_ms
        written = _rewritten(data, places, header, base_timestamp)
        max_timestamp = header.max_timestamp if header.is_log_append_time else largest_timestamp
        return Left(len(places), written, base_timestamp, max_timestamp, new_horizon)

    def _stays(self, offset: int, key: bytes | None, *, is_expired: bool) -> bool:
        if offset > self.latest_offset:
            return True
        if key is None:
            return False
        latest = self._offsets.get(self._hash(key))
        return (latest is None or offset >= latest) and not is_expired

    def _hash(self, key: bytes) -> bytes:
        """With a secret of this run, so that nobody can make two keys collide."""
        return blake2b(key, digest_size=16, key=self._secret).digest()


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


def no_records(header: BatchHeader) -> CorruptRecordError:
    return CorruptRecordError(f"the batch at offset {header.base_offset} holds bytes that are no records")
