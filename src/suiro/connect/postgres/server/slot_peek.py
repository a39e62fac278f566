"""Reads a large backlog of the slot by SQL, several times faster than through the replication protocol.

    COPY (SELECT lsn, data FROM pg_logical_slot_peek_binary_changes(...)) TO STDOUT (FORMAT binary)

The protocol costs a system call, a message and a wake-up for each BEGIN, change and COMMIT. COPY returns whole blocks.

Psycopg2 writes one row at a time. A buffered writer in C, on a separate thread, joins the rows into chunks, so that
rows arrive while earlier ones are processed and no Python code runs per row.

Invariant: peeking does not advance the slot. The records and the position are committed to Kafka block by block; the
slot is advanced afterwards. A slot has one reader at a time, so peeking happens before the replication connection is
opened. The server keeps the decoded changes in a temporary file; this process holds one block at a time, however
large a transaction is.
"""

from __future__ import annotations

import io
import queue
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.copy_binary import HEADER_BYTES, SIGNATURE, TRAILER
from suiro.connect.postgres.encoding.names import quoted
from suiro.connect.postgres.encoding.pgoutput import Block, CorruptMessageError, Int64s
from suiro.connect.postgres.server.database import Database, lsn_text

PEEK_CHANGES = 3_000_000  # each call decodes again from the slot's restart_lsn on, so small calls are slow
CHUNK_BYTES = 1 << 20  # up to four chunks are in memory, and the records of two
WAIT_S = 0.2

_ROW = struct.Struct(">hiqi")
"""How many columns, the LSN's length, the LSN, and the message's length; then the message."""
_COMMIT = ord("C")


def peek_changes(
    database: Database,
    *,
    slot: str,
    publication: str,
    upto: int,
    on_block: Callable[[Block], None],
    check: Callable[[], None],
) -> int:
    """Calls `on_block` with the next transactions up to the LSN `upto`, block by block. Returns the number of messages.

    Calls `check` now and then while the server decodes. An error of `check` or `on_block` ends the reading.
    """
    statement = (
        "COPY (SELECT lsn, data FROM pg_logical_slot_peek_binary_changes("
        f"{database.literal(slot)}, {database.literal(lsn_text(upto))}, {PEEK_CHANGES}, 'proto_version', '1', "
        f"'publication_names', {database.literal(quoted(publication))}, 'messages', 'true')) "
        "TO STDOUT (FORMAT binary)"
    )
    messages = 0
    rest = b""

    def hand_on(data: bytes) -> bytes:
        nonlocal messages
        block, behind = _block(data)
        if block is not None:
            messages += len(block)
            on_block(block)
        return behind

    with _Reader(database, statement, what=f"read slot {slot}") as reader:
        # The server decodes everything before it returns the first row, which is time to load the kernels.
        reader.asked.wait()
        engine.load()
        for chunk in reader.chunks(check):
            if not messages:
                engine.load(timeout_s=engine.LOAD_TIMEOUT_S)
            rest = hand_on(rest + chunk)
    rest = hand_on(rest)  # logical messages of no transaction, behind the last commit
    if rest != TRAILER:
        raise CorruptMessageError(f"COPY of slot {slot} ended with {len(rest)} bytes that are not a row")
    return messages


class _Reader(io.RawIOBase):
    """Runs COPY on a thread. A queue holds one chunk of its output."""

    def __init__(self, database: Database, statement: str, *, what: str) -> None:
        self._database = database
        self._statement = statement
        self._what = what
        self._queue: queue.Queue[bytes | BaseException | None] = queue.Queue(1)
        self._ended = False
        self.asked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="suiro-slot-peek", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended = True
        if self._thread.is_alive():
            self._database.cancel()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                self._thread.join(WAIT_S)

    def chunks(self, check: Callable[[], None]) -> Iterator[bytes]:
        while True:
            try:
                got = self._queue.get(timeout=WAIT_S)
            except queue.Empty:
                check()
                continue
            if isinstance(got, BaseException):
                raise got
            if got is None:
                return
            yield got

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._ended:
            raise InterruptedError("the reader was closed")
        self._queue.put(bytes(data))
        return len(data)

    def _run(self) -> None:
        try:
            sink = io.BufferedWriter(self, buffer_size=CHUNK_BYTES)
            self.asked.set()
            self._database.copy(self._statement, sink, what=self._what)
            sink.flush()
        except BaseException as error:  # noqa: BLE001 - the reading thread raises it
            self._queue.put(error)
        else:
            self._queue.put(None)


def _block(data: bytes) -> tuple[Block | None, bytes]:
    """Returns the rows up to the last commit (all rows if there is none) and the bytes behind them."""
    at = HEADER_BYTES if data.startswith(SIGNATURE) else 0
    starts, ends, lsns, rows = _rows(data, at)
    if not rows:
        return None, data[at:]
    return Block(buffer=data, starts=starts[:rows], ends=ends[:rows], lsns=lsns[:rows]), data[ends[rows - 1] :]


def _rows(data: bytes, at: int) -> tuple[Int64s, Int64s, Int64s, int]:
    """Returns where the messages of complete rows begin and end, their LSNs, and the number of rows up to the last
    commit."""
    compiled = engine.kernels()
    if compiled is not None:
        starts, ends, lsns = np.empty((3, len(data) // _ROW.size + 1), np.int64)
        result = np.zeros(4, np.int64)
        compiled.peeked_changes(np.frombuffer(data, np.uint8), at, starts, ends, lsns, result)
        status, rows, committed, _ = result.tolist()
        if status != compiled.OK:
            raise _corrupt()
        return starts, ends, lsns, committed or rows
    found = []
    committed = 0
    while at + _ROW.size <= len(data):
        columns, lsn_size, lsn, size = _ROW.unpack_from(data, at)
        if columns != 2 or lsn_size != 8 or size < 1:
            raise _corrupt()
        at += _ROW.size
        if at + size > len(data):
            break
        found.append((at, at + size, lsn))
        if data[at] == _COMMIT:
            committed = len(found)
        at += size
    table = np.array(found, np.int64).reshape(-1, 3)
    starts, ends, lsns = np.ascontiguousarray(table.T)
    return starts, ends, lsns, committed or len(found)


def _corrupt() -> CorruptMessageError:
    return CorruptMessageError("COPY gave data that is not one row of an LSN and a message")
