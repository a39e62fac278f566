"""Spools transactions that Postgres streams before they commit. A file is deleted after the commit or the abort.

No message of a transaction is returned before its commit was read. Messages of a subtransaction that was rolled back
are dropped, except relation messages. Postgres does not always announce the rollback: it forgets that it has streamed a
subtransaction of which it had put more than 4,096 changes on its own disk. So it is asked before a transaction is
returned. A restart begins with empty spools: Postgres streams unconfirmed transactions again. Of two captures on one
directory, the later one has it, and the earlier one takes only its own files away.

A disk that fails or is full raises `TransientError`: the next session may find room.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import IO

from suiro.connect.postgres.encoding.pgoutput import Block, begin_message, commit_message, join
from suiro.errors import TransientError

_HEAD = struct.Struct("<IqI")  # subtransaction, LSN, length
_WITH_XID = frozenset(b"IUDTRYM")
# They come once in a transaction, even if the subtransaction that needed them first was rolled back.
_ANNOUNCES = frozenset(b"RY")
_BUFFER = 1 << 18


class _Spool:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.xids: set[int] = set()  # of the transaction and its subtransactions
        self.aborted: set[int] = set()
        self.size = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("w+b", buffering=_BUFFER)

    def add(self, xid: int, lsn: int, message: bytes) -> None:
        self.xids.add(xid)
        self._file.write(_HEAD.pack(xid, lsn, len(message)))
        self._file.write(message)
        self.size += len(message)

    def messages(self) -> Iterator[tuple[bytes, int]]:
        self._file.seek(0)
        while head := self._file.read(_HEAD.size):
            xid, lsn, length = _HEAD.unpack(head)
            message = self._file.read(length)
            if xid not in self.aborted or message[0] in _ANNOUNCES:
                yield message, lsn

    def remove(self) -> None:
        with contextlib.suppress(OSError):  # the next session empties the directory
            self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # on a full disk there is no room for what is still in its buffer
            self._file.close()


class Spools:
    """The files of the transactions that are being streamed, in a private directory. `rolled_back` returns those of
    the given transactions that were rolled back."""

    def __init__(self, directory: Path, rolled_back: Callable[[Set[int]], Set[int]]) -> None:
        self._rolled_back = rolled_back
        self._directory = directory
        shutil.rmtree(directory, ignore_errors=True)
        self._open: dict[int, _Spool] = {}
        self._current: tuple[int, _Spool] | None = None

    @property
    def is_inside(self) -> bool:
        """Whether the stream is between stream start and stream stop, where every message belongs to a spool."""
        return self._current is not None

    @property
    def is_empty(self) -> bool:
        return not self._open

    @property
    def size_bytes(self) -> int:
        return sum(spool.size for spool in self._open.values())

    def start(self, message: bytes) -> None:
        (xid,) = struct.unpack_from(">I", message, 1)
        spool = self._open.get(xid)
        if spool is None:
            try:
                spool = self._open[xid] = _Spool(self._directory / f"{xid}.spool")
            except OSError as error:
                raise self._failed(error) from error
        self._current = (xid, spool)

    def stop(self) -> None:
        self._current = None

    def add(self, message: bytes, lsn: int) -> None:
        assert self._current is not None
        xid, spool = self._current
        if message[0] in _WITH_XID:  # version 1 of the protocol has no subtransaction there
            (xid,) = struct.unpack_from(">I", message, 1)
            message = message[:1] + message[5:]
        try:
            spool.add(xid, lsn, message)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> TransientError:
        return TransientError(
            f"transactions that Postgres streams before they commit cannot be kept in {self._directory}: "
            f"{error.strerror or error}"
        )

    def abort(self, message: bytes) -> None:
        xid, subtransaction = struct.unpack_from(">II", message, 1)
        spool = self._open.get(xid)
        if spool is None:
            return  # no part of it was streamed
        if subtransaction != xid:
            spool.aborted.add(subtransaction)
            return
        spool.remove()
        del self._open[xid]

    def commit(self, message: bytes, *, max_bytes: int) -> Iterator[Block]:
        """Yields the transaction as blocks of about `max_bytes`, and then removes its file."""
        xid, _, lsn, end_lsn, commit_us = struct.unpack_from(">IBqqq", message, 1)
        payloads, lsns, size = [begin_message(lsn=lsn, commit_us=commit_us, xid=xid)], [lsn], 0
        spool = self._open.pop(xid, None)
        try:
            if spool is not None and (unsure := spool.xids - spool.aborted - {xid}):
                spool.aborted |= self._rolled_back(unsure)
            for payload, at in () if spool is None else spool.messages():
                payloads.append(payload)
                lsns.append(at)
                size += len(payload)
                if size >= max_bytes:
                    yield join(payloads, lsns)
                    payloads, lsns, size = [], [], 0
            payloads.append(commit_message(lsn=lsn, end_lsn=end_lsn, commit_us=commit_us))
            lsns.append(lsn)
            yield join(payloads, lsns)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            if spool is not None:
                spool.remove()

    def close(self) -> None:
        for spool in self._open.values():
            spool.remove()
        self._open.clear()
        with contextlib.suppress(OSError):  # a capture that took over meanwhile may have files there
            self._directory.rmdir()
