"""Sparse indexes of a segment: offset -> position, and time -> offset. Entries of fixed size, ascending.

Kafka's formats: `.index` holds (relative offset i32, position i32), where the offset is the last one of
the batch that begins at the position; `.timeindex` holds (timestamp i64, relative offset i32): the
largest timestamp so far and the last offset of the first batch that has it. The newest entries stay
in memory until a few hundred have gathered; they can always be rebuilt from the log, so they are not
synced. Look-ups bisect the file with small reads and load nothing.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from pathlib import Path
from typing import ClassVar

from suiro.log.files import KeptFile, open_handle

PENDING_BYTES = 4096
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
_CHUNK_BYTES = 4096


def floor_of(entry: struct.Struct, data: bytes | bytearray, value: int, *, column: int = 0) -> tuple[int, int] | None:
    """The last of some entries whose column is at most `value`, or None."""
    places = range(0, len(data) - entry.size + 1, entry.size)
    found = bisect_right(places, value, key=lambda place: entry.unpack_from(data, place)[column])
    return entry.unpack_from(data, places[found - 1]) if found else None


class EntryFile(KeptFile):
    """An append-only file of ascending entries, each a pair of numbers."""

    _entry: ClassVar[struct.Struct]

    def __init__(self, path: str | Path, *, max_bytes: int) -> None:
        super().__init__(path)
        self._max_entries = max_bytes // self._entry.size
        self._pending = bytearray()
        self._known_flushed: int | None = None

    @property
    def _flushed(self) -> int:
        """Entries in the file. Asked of the disk when first needed: most segments are never looked into."""
        if self._known_flushed is None:
            try:
                self._known_flushed = os.stat(self._path).st_size // self._entry.size
            except FileNotFoundError:
                self._known_flushed = 0
        return self._known_flushed

    @property
    def is_whole(self) -> bool:
        """Whether the file is there and ends with an entry. Says nothing of what the entries hold."""
        try:
            size = os.stat(self._path).st_size
        except FileNotFoundError:
            return False
        if self._known_flushed is None:
            self._known_flushed = size // self._entry.size
        return size % self._entry.size == 0

    @property
    def count(self) -> int:
        return self._flushed + len(self._pending) // self._entry.size

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return self.count * self._entry.size

    @property
    def is_full(self) -> bool:
        # One place is kept free: sealing a segment adds its last time entry.
        return self.count >= self._max_entries - 1

    def add(self, first: int, second: int) -> None:
        self._pending += self._entry.pack(first, second)
        if len(self._pending) >= PENDING_BYTES:
            try:
                self.flush()
            except OSError:
                pass  # A full disk. The entries stay in memory and are tried again with the next ones.

    def entry(self, number: int) -> tuple[int, int]:
        size = self._entry.size
        if number >= self._flushed:
            return self._entry.unpack_from(self._pending, (number - self._flushed) * size)
        return self._entry.unpack(os.pread(self.handle, size, number * size))

    def last(self) -> tuple[int, int] | None:
        return self.entry(self.count - 1) if self.count else None

    def floor(self, value: int, *, column: int = 0) -> tuple[int, int] | None:
        """The last entry whose column is at most `value`, or None."""
        size, low, high = self._entry.size, 0, self.count
        if low < self._flushed < high:
            if self.entry(self._flushed)[column] <= value:
                low = self._flushed
            else:
                high = self._flushed
        if low >= self._flushed:
            return floor_of(self._entry, self._pending, value, column=column)
        while (high - low) * size > _CHUNK_BYTES:
            middle = (low + high) // 2
            if self.entry(middle)[column] <= value:
                low = middle
            else:
                high = middle
        return floor_of(self._entry, os.pread(self.handle, (high - low) * size, low * size), value, column=column)

    def flush(self) -> None:
        """Hand the newest entries to the operating system. Raises OSError where the disk is full."""
        if not self._pending:
            return
        # Opened for this once if need be: a partition that is only written to keeps no index open.
        handle = open_handle(self._path, create=True) if self._handle is None else self._handle
        while self._pending:
            written = os.pwrite(handle, self._pending, self._flushed * self._entry.size)
            whole = written // self._entry.size
            if whole == 0:
                raise OSError("the disk took no more bytes")
            del self._pending[: whole * self._entry.size]
            self._known_flushed = self._flushed + whole

    def clear(self) -> None:
        """Start anew, as an empty file."""
        self._pending.clear()
        self._known_flushed = 0
        os.ftruncate(self.handle, 0)

    def release(self) -> None:
        """Flush, and let go of the file. On a full disk it stays open."""
        try:
            self.flush()
        except OSError:
            return
        super().release()


class OffsetIndex(EntryFile):
    """(relative last offset of a batch, its position), one entry about every `index.interval.bytes`.

    Kafka before 4.0 wrote one for each append, with the position of its first batch and the last offset of its last.
    """

    _entry = OFFSET_ENTRY

    def entry_before(self, relative_offset: int) -> tuple[int, int] | None:
        """The last entry at or before an offset: its batch begins at or before the one that holds the offset."""
        return self.floor(relative_offset)

    def entry_at_position(self, position: int) -> tuple[int, int] | None:
        """The last entry whose batch begins at or before a file position."""
        return self.floor(position, column=1)


class TimeIndex(EntryFile):
    """(largest timestamp so far, relative last offset of the first batch that has it), both ascending."""

    _entry = TIME_ENTRY

    def add_if_later(self, timestamp: int, relative_offset: int) -> None:
        last = self.last()
        if timestamp > (last[0] if last is not None else -1):
            self.add(timestamp, relative_offset)

    def entry_before(self, timestamp: int) -> tuple[int, int] | None:
        """An entry before whose offset no record is as late as this timestamp."""
        return self.floor(timestamp - 1)
