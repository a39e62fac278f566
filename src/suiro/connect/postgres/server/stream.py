"""The replication stream, which is used while the capture keeps up.

Postgres sends a transaction after its commit, and keeps it until then. A thread sends status updates, whatever Postgres
decodes meanwhile and whatever a block's processing takes (a whole topic is read, Kafka or the registry is away), but
never reports an LSN beyond the one given to `confirm`. Postgres would end a silent connection (wal_sender_timeout), and
the next session would have the same to process. Libraries that confirm the LSN of each keepalive message by themselves
would move the slot past the position in Kafka. After a kill, the capture could then not decide whether it had missed
changes.
"""

from __future__ import annotations

import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from suiro.clock import Clock, SystemClock
from suiro.connect.postgres.encoding.names import quoted
from suiro.connect.postgres.encoding.pgoutput import Block, join
from suiro.connect.postgres.log_messages import PREFIX
from suiro.connect.postgres.server.database import lifted_limits, lsn_text, parameters, refused
from suiro.errors import BrokenConnectionError, SuiroError

BLOCK_MESSAGES = 30_000
BLOCK_BYTES = 4 << 20
STATUS_INTERVAL_MS = 5_000
CONFIRM_INTERVAL_MS = 100  # each confirmation wakes the server, and there may be hundreds of commits a second
_PREFIX = PREFIX.encode() + b"\0"
_PREFIX_AT = 10
_TRANSACTIONAL = 1  # a flag of a logical message

_COMMIT, _MESSAGE, _STREAM_ABORT = (ord(letter) for letter in "CMA")

_WAL = struct.Struct(">cqqq")
"""w, the LSN of the message, the LSN up to which the server has read the log, the server's time."""
_SERVER_KEEPALIVE = struct.Struct(">cqq?")
"""k, the LSN up to which the server has read the log, the server's time, whether it wants an answer."""
_STATUS = struct.Struct(">cqqqqx")
"""r, written, flushed, applied, the client's time; no answer is wanted."""
_WAL_DATA, _KEEPALIVE = ord("w"), ord("k")
_EPOCH_MS = 946_684_800_000  # times are µs since 2000


class ReplicationStream:
    """The stream from an LSN on. `close` releases the slot."""

    def __init__(self, dsn: str, *, slot: str, publication: str, start_lsn: int) -> None:
        self._clock = SystemClock()
        self._status_lsn = start_lsn
        self._status_sent_ms = self._clock.monotonic_ms()
        self._payloads: list[bytes] = []
        self._lsns: list[int] = []
        self._size = 0  # of the payloads, which may end within a transaction
        options = f"proto_version '1', publication_names '{quoted(publication)}', messages 'true'"
        self._replication = Replication(
            dsn,
            f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {lsn_text(start_lsn)} ({options})",
            start_lsn=start_lsn,
            what=f"read from slot {slot}",
            clock=self._clock,
        )
        self._lock = threading.Lock()  # of the connection
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep_alive, name="suiro-keep-alive", daemon=True)
        self._keeper.start()

    def close(self) -> None:
        self._closing.set()
        self._keeper.join()
        self._replication.close()

    @property
    def wal_end(self) -> int:
        """The LSN up to which the server has decoded, from its messages."""
        return self._replication.wal_end

    @property
    def is_idle(self) -> bool:
        """Whether everything up to `wal_end` has been returned by `read_block`."""
        return not self._payloads

    def wait(self, timeout_s: float, *others: Any) -> bool:
        """Waits until the server or one of `others` is readable; returns False after the timeout."""
        poll = select.poll()  # `select` does not take descriptors above 1,023
        for one in (self._replication, *others):
            poll.register(one, select.POLLIN)
        return bool(poll.poll(timeout_s * 1_000))

    def read_block(self) -> Block | None:
        """Returns what has arrived: a block of whole transactions, or a part of one that is larger."""
        with self._lock:
            ready = self._read()
        return self._take_pending(ready) if ready else None

    def _read(self) -> int:
        """Returns how many of the pending messages are a block."""
        last_commit = 0  # the number of messages up to the last one that ends a transaction, or is of none
        stop_at_commit = False
        while (message := self._replication.read()) is not None:
            at, payload = message
            kind = payload[0]
            if kind == _STREAM_ABORT:  # Postgres 18 sends them also where nothing is streamed (BUG #19616)
                continue
            self._payloads.append(payload)
            self._lsns.append(at)
            self._size += len(payload)
            # A logical message of no transaction never comes within one.
            if kind == _COMMIT or (kind == _MESSAGE and not payload[1] & _TRANSACTIONAL):
                last_commit = len(self._payloads)
                if stop_at_commit:
                    break
            elif kind == _MESSAGE and payload.startswith(_PREFIX, _PREFIX_AT):
                stop_at_commit = True  # its request must be handled directly after its transaction
            if self._is_full:
                break
        # Without a commit, a full block is a part of one transaction.
        return last_commit or (len(self._payloads) if self._is_full else 0)

    @property
    def _is_full(self) -> bool:
        return len(self._payloads) >= BLOCK_MESSAGES or self._size >= BLOCK_BYTES

    def _take_pending(self, count: int) -> Block:
        block = join(self._payloads[:count], self._lsns[:count])
        self._size -= len(block.buffer)
        del self._payloads[:count]
        del self._lsns[:count]
        return block

    def confirm(self, lsn: int) -> None:
        """Confirms that everything before this LSN is in Kafka, so the server may remove it."""
        with self._lock:
            self._replication.confirmed = max(self._replication.confirmed, lsn)
        self.send_status()

    def send_status(self) -> None:
        """Sends a status update if it is time to: sooner if there is a new LSN to confirm."""
        with self._lock:
            is_new = self._replication.confirmed > self._status_lsn
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._status_sent_ms >= (CONFIRM_INTERVAL_MS if is_new else STATUS_INTERVAL_MS):
                self._status_sent_ms, self._status_lsn = now_ms, self._replication.confirmed
                self._replication.send_status()

    def _keep_alive(self) -> None:
        while not self._closing.wait(STATUS_INTERVAL_MS / 1_000):
            try:
                self.send_status()
            except SuiroError:
                return  # the next read raises the error


class Replication:
    """The streaming replication protocol on a libpq connection, from `start_lsn` on: WAL messages in, standby status
    updates out. Raises the errors of `postgres_errors`."""

    def __init__(self, dsn: str, command: str, *, start_lsn: int, what: str, clock: Clock) -> None:
        self.wal_end = 0
        """The LSN up to which the server has decoded, from its messages. The LSN of a change may be far before it."""
        self.confirmed = start_lsn
        """The LSN to confirm; sent when the server asks, and by `send_status`."""
        self._clock = clock
        info = make_conninfo(dsn, replication="database", **parameters(dsn))
        with _lost("connect for replication"):
            self._connection = pq.PGconn.connect(info.encode())
        if self._connection.status != pq.ConnStatus.OK:
            raise self._error("connect for replication", None)
        # The server decodes within a transaction of its own, and waits in it until the client has read its messages.
        with _lost(what):
            self._connection.exec_(lifted_limits(self._connection.server_version).encode())
            result = self._connection.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            error = self._error(what, result)
            self.close()
            raise error

    def close(self) -> None:
        self._connection.finish()

    def fileno(self) -> int:
        with _lost("wait for the replication stream"):
            return self._connection.socket

    def read(self) -> tuple[int, bytes] | None:
        """Returns the LSN of the next message and the message, or None if there is none now."""
        connection, has_looked = self._connection, False
        with _lost("read from the replication stream"):
            while True:
                length, data = connection.get_copy_data(1)
                if length > 0:
                    if data[0] == _WAL_DATA:
                        _, at, end, _ = _WAL.unpack_from(data)
                        self.wal_end = max(self.wal_end, end)
                        return at, bytes(data[_WAL.size :])
                    if data[0] == _KEEPALIVE:
                        _, end, _, wants_answer = _SERVER_KEEPALIVE.unpack_from(data)
                        self.wal_end = max(self.wal_end, end)
                        if wants_answer:
                            self.send_status()
                elif length < 0:
                    raise self._error("read from the replication stream", connection.get_result())
                elif has_looked:
                    return None
                else:
                    connection.consume_input()
                    has_looked = True

    def send_status(self) -> None:
        now = (self._clock.wall_ms() - _EPOCH_MS) * 1_000
        lsn = self.confirmed
        with _lost("confirm what was read"):
            self._connection.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, now))
            self._connection.flush()

    def _error(self, what: str, result: pq.abc.PGresult | None) -> Exception:
        if result is None:
            return refused(what, "", _text(self._connection.error_message))
        code = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
        parts = (
            result.error_field(field)
            for field in (
                pq.DiagnosticField.MESSAGE_PRIMARY,
                pq.DiagnosticField.MESSAGE_DETAIL,
                pq.DiagnosticField.MESSAGE_HINT,
            )
        )
        words = "; ".join(_text(part) for part in parts if part)
        return refused(what, code.decode(), words or _text(self._connection.error_message))


@contextmanager
def _lost(what: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        words = " ".join(str(error).split())
        raise BrokenConnectionError(f"{what}: lost Postgres, or could not reach it: {words}") from error


def _text(data: bytes) -> str:
    return " ".join(data.decode(errors="replace").split())
