"""Memory that connections hold for their peers: requests that came and wait, answers that a slow peer has not taken.

Both are bounded over all connections. Neither costs anything while requests are handled as they come and answers
leave at once, which is nearly always: only what stays is counted.

Requests. A connection takes memory when a request is not whole yet, for what has come of it, and when requests come
behind one that is being answered. What a peer only claims to send does not count: a few of them that claim much and
send nothing would shut out all others. Once the limit is reached nobody who holds none is read. Those who hold some
go on, or they could never give it back; and requests behind others get half of the limit at most, because they wait
for what others have yet to send.

Answers. Once the limit is passed, the connection whose peer has taken nothing for the longest is closed.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from typing import Protocol

_RESUMED_AT_ONCE = 32


class Reader(Protocol):
    """A connection that was not read because the memory was used up."""

    def read_again(self) -> None: ...


class RequestMemory:
    """Bytes of requests that are not handled yet."""

    def __init__(self, loop: AbstractEventLoop, *, max_bytes: int, max_holders: int) -> None:
        self._loop = loop
        self._max_holders = max_holders
        self._waiting: dict[Reader, None] = {}
        self._resuming = False
        self.max_bytes = max_bytes
        self.used = 0
        self.holders = 0

    @property
    def exhausted(self) -> bool:
        return self.used >= self.max_bytes

    @property
    def may_read_ahead(self) -> bool:
        """Whether requests behind one that is being answered may be read."""
        return self.used * 2 < self.max_bytes and self.holders < self._max_holders

    def change(self, before: int, after: int) -> None:
        """A connection holds `after` bytes now."""
        self.used += after - before
        self.holders += (after > 0) - (before > 0)
        if self._waiting and not self._resuming and not self.exhausted:
            self._resuming = True
            self._loop.call_soon(self._resume)

    def wait(self, reader: Reader) -> None:
        """Be read again when there is memory: first come, first served."""
        self._waiting[reader] = None

    def forget(self, reader: Reader) -> None:
        self._waiting.pop(reader, None)

    def _resume(self) -> None:
        self._resuming = False
        for reader in list(self._waiting)[:_RESUMED_AT_ONCE]:
            if self.exhausted:
                return
            del self._waiting[reader]
            reader.read_again()
        if self._waiting:
            self._resuming = True
            self._loop.call_soon(self._resume)


class Writer(Protocol):
    """A connection whose peer is slow to take an answer."""

    def close_slow(self) -> None: ...


class ResponseMemory:
    """Bytes of answers that peers have not taken yet. File regions do not count: they are on disk."""

    def __init__(self, *, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used = 0
        self._held: dict[Writer, int] = {}  # in the order of the last progress, slowest first

    @property
    def holders(self) -> int:
        return len(self._held)

    def hold(self, writer: Writer, size: int) -> None:
        """The peer took something, or is given something to take; `size` bytes are left."""
        self.used += size - self._held.pop(writer, 0)
        self._held[writer] = size
        while self.used > self.max_bytes and self._held:
            next(iter(self._held)).close_slow()  # which releases

    def release(self, writer: Writer) -> None:
        self.used -= self._held.pop(writer, 0)
