"""Reading a remote segment: its indexes, and chunks of its records, each kept for a while.

A read fetches more than was asked for (a consumer that reads old records goes on to the next ones), verifies every
batch, and writes the chunk into a file of its own without a name. So a fetch gets file regions as from the local log,
which stay valid until the last response with them is sent, whatever the cache drops.

All methods wait for the store and are called from several threads at once. There are two caches, each with a limit in
bytes: indexes in memory, chunks on disk. The number of chunks has a limit, too.
"""

from __future__ import annotations

import os
import tempfile
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from suiro import descriptors
from suiro.errors import CorruptRecordError
from suiro.log.errors import CorruptBatchError
from suiro.log.files import FileHandle
from suiro.log.index import OFFSET_ENTRY, TIME_ENTRY, floor_of
from suiro.log.segments import Region
from suiro.log.tier.copying import Proceed, checked_object, part_of_object
from suiro.log.tier.segment_metadata import RemoteSegment
from suiro.log.tier.store import RemoteStore, RemoteStoreError
from suiro.log.transaction_index import AbortedTransaction, decode_transactions
from suiro.protocol import time_search
from suiro.protocol.record_batch import HEADER_SIZE, BatchHeader, iter_headers, read_header, verify

MOST_CHUNKS = descriptors.for_files() // 8
"""Each is an open file, also where segments are so small that thousands of chunks are few bytes."""


class _Batch(NamedTuple):
    last_offset: int
    max_timestamp: int
    position: int  # in the chunk
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Whole batches of a segment; every record from `first_offset` to the last batch's last offset is in it."""

    handle: FileHandle
    first_offset: int
    start: int  # position in the segment
    size: int
    batches: tuple[_Batch, ...]

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset


class RemoteRead(NamedTuple):
    """A file region of whole batches, and the offset behind the last of them."""

    region: Region
    next_offset: int


class RemoteReader:
    """Reads segments through both caches. `directory` is where the nameless files of the chunks are made."""

    def __init__(
        self,
        store: RemoteStore,
        *,
        directory: Path,
        index_cache_bytes: int,
        chunk_cache_bytes: int,
        read_ahead_bytes: int,
        proceed: Proceed,
    ) -> None:
        self._store = store
        self._directory = directory
        self._index_limit = index_cache_bytes
        self._chunk_limit = chunk_cache_bytes
        self._read_ahead = read_ahead_bytes
        self._proceed = proceed
        self._lock = threading.Lock()
        self._indexes: OrderedDict[tuple[UUID, str], bytes] = OrderedDict()
        self._index_bytes = 0
        self._chunks: OrderedDict[tuple[UUID, int], _Chunk] = OrderedDict()
        self._chunk_bytes = 0
        self._reading: dict[UUID, threading.Lock] = {}

    def keep_indexes(self, most_bytes: int) -> None:
        """Set the limit of the indexes in memory, from the next one on."""
        self._index_limit = most_bytes

    def read(self, segment: RemoteSegment, offset: int, *, max_bytes: int) -> RemoteRead | None:
        """Returns the batches from the one that holds `offset` on: at least one, then no more than `max_bytes`.

        Returns None if the segment has nothing at or behind the offset. Raises RemoteStoreError.
        """
        chunk = self._chunk(segment, offset)
        if chunk is None:
            return None
        number = bisect_left(chunk.batches, offset, key=lambda batch: batch.last_offset)
        start, length, last = chunk.batches[number].position, 0, offset
        for batch in chunk.batches[number:]:
            if length and length + batch.size > max_bytes:
                break
            length += batch.size
            last = batch.last_offset
        return RemoteRead((chunk.handle, start, length), last + 1)

    def aborted(self, segment: RemoteSegment) -> Sequence[AbortedTransaction]:
        """Returns the transactions whose abort marker is in the segment."""
        if segment.transaction_index_empty:
            return ()
        return decode_transactions(self._index(segment, "txnindex"))

    def first_at_or_after(self, segment: RemoteSegment, timestamp: int, *, from_offset: int) -> tuple[int, int] | None:
        """Returns (offset, timestamp) of the segment's first record at least this late, from an offset on.

        Raises RemoteStoreError, and CorruptBatchError if a producer's batch holds no records.
        """
        times = self._index(segment, "timeindex")
        _, near = floor_of(TIME_ENTRY, times, timestamp - 1) or (0, 0)
        offset = max(segment.start_offset + near, from_offset)
        while (chunk := self._chunk(segment, offset)) is not None:
            for batch in chunk.batches:
                if batch.max_timestamp < timestamp or batch.last_offset < offset:
                    continue
                data = os.pread(chunk.handle, batch.size, batch.position)
                try:
                    found = time_search.first_at_or_after(data, timestamp, from_offset=offset)
                except CorruptRecordError as error:
                    raise CorruptBatchError(f"{segment.object_name('log')}: {error}") from error
                if found is not None:
                    return found
            offset = chunk.last_offset + 1
        return None

    def forget(self, segment: RemoteSegment) -> None:
        """Drop a segment that is gone from the caches."""
        with self._lock:
            for index in [key for key in self._indexes if key[0] == segment.segment_id]:
                self._index_bytes -= len(self._indexes.pop(index))
            for key in [key for key in self._chunks if key[0] == segment.segment_id]:
                self._chunk_bytes -= self._chunks.pop(key).size
            self._reading.pop(segment.segment_id, None)

    # Chunks

    def _chunk(self, segment: RemoteSegment, offset: int) -> _Chunk | None:
        """Returns the chunk with the first batch that ends at or behind an offset."""
        if offset > segment.end_offset or segment.size == 0:
            return None
        with self._lock:
            lock = self._reading.setdefault(segment.segment_id, threading.Lock())
        # Many consumers that want the same old records cause one request to the store.
        with lock:
            chunk, position = self._cached(segment, offset)
            if chunk is None:
                chunk = self._fetch_chunk(segment, offset, position)
                if chunk is not None:
                    self._keep(segment, chunk)
        return chunk

    def _cached(self, segment: RemoteSegment, offset: int) -> tuple[_Chunk | None, int | None]:
        """Returns the chunk with the offset, or else the position of the offset if a chunk ends just before it."""
        position = None
        with self._lock:
            for key, chunk in self._chunks.items():
                if key[0] != segment.segment_id:
                    continue
                if chunk.first_offset <= offset <= chunk.last_offset:
                    self._chunks.move_to_end(key)
                    return chunk, None
                if chunk.last_offset + 1 == offset:
                    position = chunk.start + chunk.size
        return None, position

    def _keep(self, segment: RemoteSegment, chunk: _Chunk) -> None:
        with self._lock:
            replaced = self._chunks.pop((segment.segment_id, chunk.start), None)
            self._chunk_bytes += chunk.size - (replaced.size if replaced is not None else 0)
            self._chunks[segment.segment_id, chunk.start] = chunk
            while len(self._chunks) > 1 and (self._chunk_bytes > self._chunk_limit or len(self._chunks) > MOST_CHUNKS):
                self._chunk_bytes -= self._chunks.popitem(last=False)[1].size

    def _fetch_chunk(self, segment: RemoteSegment, offset: int, position: int | None) -> _Chunk | None:
        if position is None:
            offsets = self._index(segment, "index")
            _, position = floor_of(OFFSET_ENTRY, offsets, offset - segment.start_offset) or (0, 0)
        wanted = self._read_ahead
        while position < segment.size:
            data = self._fetch(segment, position, wanted)
            batches, begin, end = [], None, 0
            for at, header in _verified(data, segment):
                end = at + header.size
                if header.last_offset < offset:
                    continue
                begin = at if begin is None else begin
                batches.append(_Batch(header.last_offset, header.max_timestamp, at - begin, header.size))
            if begin is not None:
                return self._written(data[begin:end], offset, position + begin, tuple(batches))
            if end == 0:  # The first batch is larger than a chunk.
                wanted = self._first_size(data, segment)
            position += end
        return None

    def _first_size(self, data: bytes, segment: RemoteSegment) -> int:
        size = read_header(data).size if len(data) >= HEADER_SIZE else 0
        if size <= len(data):
            raise RemoteStoreError(f"{segment.object_name('log')} ends in the middle of a batch")
        return size

    def _written(self, data: bytes, offset: int, start: int, batches: tuple[_Batch, ...]) -> _Chunk:
        try:
            with tempfile.TemporaryFile(dir=self._directory) as file:
                file.write(data)
                file.flush()
                handle = FileHandle(os.dup(file.fileno()))
        except OSError as error:
            raise RemoteStoreError(
                f"cannot keep a chunk of the remote tier in {self._directory}: {error.strerror}"
            ) from error
        return _Chunk(handle=handle, first_offset=offset, start=start, size=len(data), batches=batches)

    def _fetch(self, segment: RemoteSegment, position: int, length: int) -> bytes:
        length = min(length, segment.size - position)
        return part_of_object(self._store, segment, "log", position, length, proceed=self._proceed)

    # Indexes

    def _index(self, segment: RemoteSegment, kind: str) -> bytes:
        key = (segment.segment_id, kind)
        with self._lock:
            found = self._indexes.get(key)
            if found is not None:
                self._indexes.move_to_end(key)
                return found
        data = checked_object(self._store, segment, kind, proceed=self._proceed)
        with self._lock:
            if key not in self._indexes:
                self._indexes[key] = data
                self._index_bytes += len(data)
            while self._index_bytes > self._index_limit and len(self._indexes) > 1:
                self._index_bytes -= len(self._indexes.popitem(last=False)[1])
        return data


def _verified(data: bytes, segment: RemoteSegment) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the whole batches in `data`, their checksums right. Raises RemoteStoreError."""
    try:
        for position, header in iter_headers(data):
            verify(data, position, header)
            yield position, header
    except CorruptRecordError as error:
        raise RemoteStoreError(f"{segment.object_name('log')} is not what was sent: {error}") from error
