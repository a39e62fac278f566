"""Reading far behind: the slot by SQL, which decodes several times faster than the protocol sends.

    COPY (SELECT lsn, data FROM pg_logical_slot_peek_binary_changes(...)) TO STDOUT (FORMAT binary)

The protocol costs a system call, a message and a wake-up for each BEGIN, change and COMMIT; here whole blocks come.

Always true: peeking moves nothing. What was read goes to Kafka with its position, block by block while more comes;
only then is the slot advanced. A slot has one reader at a time, so this happens before the protocol is opened. The
server keeps what it decoded in a temporary file, and here is one block of it at a time, however large a transaction.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from suiro.connect.postgres.blocks import Block, Int64s
from suiro.connect.postgres.database import Database, quoted
from suiro.connect.postgres.lsn import lsn_text
from suiro.connect.postgres.pgoutput import CorruptMessageError

__all__ = ["peek"]

PEEK_CHANGES = 3_000_000  # a call decodes again from the slot's restart_lsn on, so small ones are slow
BLOCK_BYTES = 4 << 20

_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
_SIGNATURE_SIZE = 19
_ROW_SIZE = 18  # how many columns, the LSN with its length, the length of the message; then the message
_COMMIT = ord("C")


class _Rows:
    """A file for COPY: hands on a block whenever enough was written."""

    def __init__(self, on_block: Callable[[Block], None]) -> None:
        self._on_block = on_block
        self._parts: list[bytes] = []
        self._size = 0
        self.messages = 0

    # psycopg2 gives one row at a time.
    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size >= BLOCK_BYTES:
            self.flush(whole=False)

    def flush(self, *, whole: bool) -> None:
        parts = self._parts
        if parts and parts[0].startswith(_SIGNATURE):
            parts[0] = parts[0][_SIGNATURE_SIZE:]
        rows = [part for part in parts if len(part) >= _ROW_SIZE]  # not the trailer
        data = b"".join(rows)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ends = np.cumsum(lengths)
        begins = ends - lengths
        if (_integers(data, begins, 14, 4) != lengths - _ROW_SIZE).any():
            raise CorruptMessageError("COPY gave something that is not one row of an LSN and a message")
        starts = begins + _ROW_SIZE
        cut = len(rows)
        if not whole:
            commits = np.flatnonzero(_integers(data, starts, 0, 1) == _COMMIT)
            cut = int(commits[-1]) + 1 if len(commits) else cut
        self._parts = rows[cut:]
        self._size = sum(map(len, self._parts))
        if cut:
            self.messages += cut
            lsns = _integers(data, begins[:cut], 6, 8)
            self._on_block(Block(buffer=data, starts=starts[:cut], ends=ends[:cut], lsns=lsns))


def _integers(data: bytes, places: Int64s, at: int, size: int) -> Int64s:
    """The big-endian integer of `size` bytes at byte `at` of each place."""
    source = np.frombuffer(data, np.uint8)
    found = np.zeros(len(places), np.int64)
    for byte in range(size):
        found = (found << 8) | source[places + (at + byte)]
    return found


def peek(
    database: Database, *, slot: str, publication: str, upto: int, on_block: Callable[[Block], None]
) -> int:
    """The next transactions up to that place in the log, block by block; returns how many messages they were."""
    rows = _Rows(on_block)
    statement = (
        "COPY (SELECT lsn, data FROM pg_logical_slot_peek_binary_changes("
        f"{database.literal(slot)}, {database.literal(lsn_text(upto))}, {PEEK_CHANGES}, 'proto_version', '1', "
        f"'publication_names', {database.literal(quoted(publication))}, 'messages', 'true')) "
        "TO STDOUT (FORMAT binary)"
    )
    database.copy(statement, rows, what=f"read slot {slot}")
    rows.flush(whole=True)
    return rows.messages
