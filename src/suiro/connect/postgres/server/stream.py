"""The replication stream: used while the capture keeps up, and the only way to read transactions that are not finished.

`blocks` returns committed transactions only; streamed transactions wait in their spools. A thread sends status updates,
whatever a block's processing takes (a whole topic is read, Kafka or the registry is away), but never reports an LSN
beyond the one given to `confirm`. Postgres would end a silent connection (wal_sender_timeout), and the next session
would have the same to process.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Any

from suiro.clock import SystemClock
from suiro.connect.postgres.encoding.blocks import Block, join
from suiro.connect.postgres.encoding.names import quoted
from suiro.connect.postgres.log_messages import PREFIX
from suiro.connect.postgres.server.database import lsn_text
from suiro.connect.postgres.server.replication import Replication
from suiro.connect.postgres.server.spool import Spools
from suiro.errors import SuiroError

BLOCK_MESSAGES = 30_000
BLOCK_BYTES = 4 << 20
STATUS_INTERVAL_MS = 5_000
CONFIRM_INTERVAL_MS = 100  # each confirmation wakes the server, and there may be hundreds of commits a second
_PREFIX = PREFIX.encode() + b"\0"
_PREFIX_AT = 10
_TRANSACTIONAL = 1  # a flag of a logical message

_COMMIT, _MESSAGE, _START, _STOP, _STREAM_COMMIT, _STREAM_ABORT = (ord(letter) for letter in "CMSEcA")
_STREAMING = frozenset((_START, _STREAM_COMMIT, _STREAM_ABORT))


class ReplicationStream:
    """The stream from an LSN on. `close` releases the slot. `rolled_back`: see `Spools`."""

    def __init__(
        self,
        dsn: str,
        *,
        slot: str,
        publication: str,
        start_lsn: int,
        directory: Path,
        rolled_back: Callable[[Set[int]], Set[int]],
    ) -> None:
        self._spools = Spools(directory, rolled_back)
        self._clock = SystemClock()
        self._status_lsn = start_lsn
        self._status_sent_ms = self._clock.monotonic_ms()
        self._payloads: list[bytes] = []
        self._lsns: list[int] = []
        self._size = 0  # of the payloads, which may end within a transaction
        options = f"proto_version '2', publication_names '{quoted(publication)}', messages 'true', streaming 'true'"
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
        self._spools.close()
        self._replication.close()

    @property
    def wal_end(self) -> int:
        """The LSN up to which the server has decoded, from its messages."""
        return self._replication.wal_end

    @property
    def is_idle(self) -> bool:
        """Whether everything up to `wal_end` has been returned by `blocks`."""
        return not self._payloads and self._spools.is_empty

    @property
    def is_spooling(self) -> bool:
        """Whether a transaction is being streamed that has not ended."""
        return not self._spools.is_empty

    @property
    def spooled_bytes(self) -> int:
        return self._spools.size_bytes

    def wait(self, timeout_s: float, *others: Any) -> bool:
        """Waits until the server or one of `others` is readable; returns False after the timeout."""
        poll = select.poll()  # `select` does not take descriptors above 1,023
        for one in (self._replication, *others):
            poll.register(one, select.POLLIN)
        return bool(poll.poll(timeout_s * 1_000))

    def blocks(self) -> Iterator[Block]:
        """Yields what has arrived: at most one block of small transactions, or the parts of one that is larger."""
        with self._lock:
            ready, streamed = self._read()
        if ready:
            yield self._take_pending(ready)
        if streamed is not None:
            yield from self._spools.commit(streamed, max_bytes=BLOCK_BYTES)

    def _read(self) -> tuple[int, bytes | None]:
        """Returns how many of the pending messages are a block, and the commit of a streamed transaction after them."""
        last_commit = 0  # the number of messages up to the last one that ends a transaction, or is of none
        stop_at_commit = False
        while (message := self._replication.read()) is not None:
            at, payload = message
            kind = payload[0]
            if self._spools.is_inside:
                if kind == _STOP:
                    self._spools.stop()
                else:
                    self._spools.add(payload, at)
                continue
            if kind in _STREAMING:
                if kind == _START:
                    self._spools.start(payload)
                elif kind == _STREAM_ABORT:
                    self._spools.abort(payload)
                else:
                    return len(self._payloads), payload
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
        return last_commit or (len(self._payloads) if self._is_full else 0), None

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
