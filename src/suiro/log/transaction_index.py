"""The `.txnindex` of a segment: the transactions whose abort marker is in the segment, in order of the markers.

Kafka's entry, version 0: version i16, producer id i64, first offset i64, last offset (the marker's)
i64, and the last stable offset after the marker i64. A read_committed fetch answers with the entries
that overlap its range; the client leaves their records out. Small, so it is read whole.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from suiro.log.files import FileHandle, open_handle, read_file, write_all

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def is_sound(data: bytes, *, base_offset: int, end_offset: int) -> bool:
    """Whether a segment's file holds whole entries of the one version, their markers rising within the segment."""
    if len(data) % _ENTRY.size:
        return False
    reached = base_offset
    for version, producer_id, first, last, _ in _ENTRY.iter_unpack(data):
        if version != _VERSION or producer_id < 0 or not 0 <= first <= last or not reached <= last < end_offset:
            return False
        reached = last + 1
    return True


def decode_transactions(data: bytes) -> list[AbortedTransaction]:
    """Returns the entries of a transaction index, without a torn last one."""
    whole = len(data) // _ENTRY.size * _ENTRY.size
    return [AbortedTransaction(*row[1:]) for row in _ENTRY.iter_unpack(data[:whole])]


class TransactionIndex:
    """The file is absent while no transaction was aborted, as in Kafka."""

    def __init__(self, path: str | Path) -> None:
        self._path = os.fspath(path)
        self._entries: list[AbortedTransaction] | None = None
        self._added: list[AbortedTransaction] = []  # and not among the entries yet
        self._flushed = 0

    @property
    def path(self) -> Path:
        return Path(self._path)

    @property
    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            self._entries = decode_transactions(read_file(self._path) or b"")
            self._flushed = len(self._entries)
        if self._added:
            self._entries += self._added
            self._added.clear()
        return self._entries

    def add(self, entry: AbortedTransaction) -> None:
        """Remember the entry and write it. If the disk fails, the write is retried later."""
        self._added.append(entry)
        try:
            self.flush()
        except OSError:
            pass  # The transaction is aborted whatever this file says: its marker is in the log.

    def flush(self) -> None:
        """Write the entries that are not in the file yet. Raises OSError."""
        rest = self.entries[self._flushed :]
        if rest:
            data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in rest)
            write_all(open_handle(self.path, create=True), [data], self._flushed * _ENTRY.size, len(data))
            self._flushed += len(rest)

    def clear(self) -> None:
        self._entries = []
        self._added.clear()
        self._flushed = 0
        self.path.unlink(missing_ok=True)

    def handles_to_sync(self) -> list[FileHandle]:
        self.flush()
        return [open_handle(self.path)] if self.path.exists() else []
