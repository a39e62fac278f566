"""The streaming replication protocol on a libpq connection: WAL messages in, standby status updates out.

Only `send_status` confirms an LSN. Libraries that confirm the LSN of each keepalive message by themselves would move
the slot past the position in Kafka. After a kill, the capture could then not decide whether it had missed changes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from suiro.clock import Clock
from suiro.connect.postgres.server.database import lifted_limits, parameters, refused
from suiro.errors import BrokenConnectionError

_WAL = struct.Struct(">cqqq")
"""w, the LSN of the message, the LSN up to which the server has read the log, the server's time."""
_SERVER_KEEPALIVE = struct.Struct(">cqq?")
"""k, the LSN up to which the server has read the log, the server's time, whether it wants an answer."""
_STATUS = struct.Struct(">cqqqqx")
"""r, written, flushed, applied, the client's time; no answer is wanted."""
_MESSAGE, _KEEPALIVE = ord("w"), ord("k")
_EPOCH_MS = 946_684_800_000  # times are µs since 2000


class Replication:
    """A replication stream from `start_lsn` on. Raises the errors of `postgres_errors`."""

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
                    if data[0] == _MESSAGE:
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
