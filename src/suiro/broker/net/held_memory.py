"""Memory that connections hold for their peers: requests that wait, and answers that a slow peer has not taken.

Each kind is limited over all connections. Only what stays is counted: nearly always requests are handled as they arrive
and answers leave at once, and then nothing is.

Requests. A connection holds the received bytes of a request that is not whole, and the requests behind one that is
being answered. Bytes that a peer only claims to send do not count: a few peers that claim much and send nothing would
shut out all others. At the limit, connections that hold nothing are not read. Those that hold some are read on, or they
could never release it; and requests behind others get half of the limit at most. When a connection has waited for
`LONGEST_WAIT_NS`, those whose requests have not begun are closed, the largest first: they send too slowly, or nothing,
or too many large requests that take turns.

Logins. Connections that have not logged in share a small memory of their own. Once it is used up, the one that holds
the most is closed: a login is short, and a client that sends it whole holds nothing.

Answers. Over the limit, the connection whose peer has taken nothing for the longest time is closed, of those that hold
memory. Records are sent from their files, which stay open so long. Their number has a limit of its own: files that
nobody can open would stop all others.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Protocol

_RESUMED_AT_ONCE = 32
LONGEST_WAIT_NS = 10_000_000_000
"""A connection that is not read for so long, because the memory is used up, gets some of it."""


class Reader(Protocol):
    """A connection that holds requests, or was not read because the memory was used up."""

    def read_again(self) -> None: ...

    def has_not_begun(self) -> bool:
        """Whether what it holds is a request that is not whole, or is put off; else it waits for an answer to the one
        before."""
        ...

    def close_holder(self) -> None:
        """Close this connection: the memory is used up."""
        ...


class RequestMemory:
    """Bytes of requests that are not handled yet."""

    def __init__(self, loop: AbstractEventLoop, *, max_bytes: int, max_holders: int) -> None:
        self._loop = loop
        self._max_holders = max_holders
        self._held: dict[Reader, int] = {}
        self._waiting: dict[Reader, int] = {}  # since when, by `stopwatch_ns`
        self._resuming = False
        self.max_bytes = max_bytes
        self.used = 0

    @property
    def holders(self) -> int:
        return len(self._held)

    @property
    def exhausted(self) -> bool:
        """Whether a connection that holds nothing must not be read."""
        return self.used >= self.max_bytes

    @property
    def may_read_ahead(self) -> bool:
        """Whether requests behind one that is being answered may be read."""
        return self.used * 2 < self.max_bytes and self.holders < self._max_holders

    def hold(self, reader: Reader, size: int) -> None:
        """A connection holds so many bytes now."""
        self.used += size - self._held.pop(reader, 0)
        if size:
            self._held[reader] = size
        if self._waiting and not self._resuming and not self.exhausted:
            self._resuming = True
            self._loop.call_soon(self._resume)

    def wait(self, reader: Reader, now_ns: int) -> None:
        """Be read again when there is memory: first come, first served."""
        self._waiting.setdefault(reader, now_ns)

    def forget(self, reader: Reader) -> None:
        """The connection is closed, or counts elsewhere from now on: it holds nothing and waits for nothing here."""
        self._waiting.pop(reader, None)
        self.hold(reader, 0)

    def end_standstill(self, now_ns: int) -> None:
        """Close holders until there is memory, if a connection has waited for too long. Call it periodically."""
        first_ns = next(iter(self._waiting.values()), now_ns)
        if not self.exhausted or now_ns - first_ns < LONGEST_WAIT_NS:
            return
        for reader in sorted(self._held, key=self._held.__getitem__, reverse=True):
            if self.used * 8 <= self.max_bytes * 7:
                return
            if reader.has_not_begun():
                reader.close_holder()

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


class LoginMemory:
    """Bytes that came from connections that have not logged in. None of them waits for another."""

    may_read_ahead: bool = False

    def __init__(self, *, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used = 0
        self._held: dict[Reader, int] = {}

    def hold(self, reader: Reader, size: int) -> None:
        self.used += size - self._held.pop(reader, 0)
        if size:
            self._held[reader] = size
        while self.used >= self.max_bytes:  # so it is never exhausted
            max(self._held, key=self._held.__getitem__).close_holder()  # which forgets it

    def wait(self, reader: Reader, now_ns: int) -> None:
        raise AssertionError("this memory is never exhausted")

    def forget(self, reader: Reader) -> None:
        self.hold(reader, 0)


class Writer(Protocol):
    """A connection whose peer is slow to take an answer."""

    def close_slow(self) -> None: ...


class ResponseMemory:
    """Bytes of answers that peers have not taken yet, and files that are still to be sent from."""

    def __init__(self, *, max_bytes: int, are_too_many: Callable[[int], bool]) -> None:
        """`are_too_many(files)`: whether so many files leave too few descriptors to others."""
        self.max_bytes = max_bytes
        self._are_too_many = are_too_many
        self.used = 0
        self.files = 0
        self.named = 0
        """Files that answers named, and that stay open until their clients have opened them."""
        # (bytes, files), in the order of the last progress, slowest first
        self._held: dict[Writer, tuple[int, int]] = {}

    @property
    def holders(self) -> int:
        return len(self._held)

    @property
    def may_name_files(self) -> bool:
        return not self._are_too_many(self.files + self.named)

    def hold(self, writer: Writer, size: int, files: int) -> None:
        """The peer took something, or is given something to take; so many bytes and files are left."""
        _, before = self._held.get(writer, (0, 0))
        self.release(writer)
        self._held[writer] = size, files
        self.used += size
        self.files += files
        while self.used > self.max_bytes:
            # Who waits only for records, which are sent from their files, holds nothing that could be released.
            next(slow for slow, (held, _) in self._held.items() if held).close_slow()  # which releases
        # Who takes something adds no file. It does so thousands of times a second, and to look lists all descriptors.
        while files > before and self._are_too_many(self.files + self.named):
            slow = next((slow for slow, (_, held) in self._held.items() if held and slow is not writer), None)
            if slow is None:
                break
            slow.close_slow()

    def release(self, writer: Writer) -> None:
        size, files = self._held.pop(writer, (0, 0))
        self.used -= size
        self.files -= files
