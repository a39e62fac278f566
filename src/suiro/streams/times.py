"""Operator time: the latest event time that an operator of a task has seen (`observedStreamTime` in Kafka Streams).

It is the latest timestamp of the records that reached the operator, and what closes windows. Unlike Kafka Streams' it
survives restarts: it is kept in an ordered map beside the stores (`keep`, `restore`).

Where one task gets only some of the records of a partition upstream, because they were spread by key, a record also
carries how far its partition had come (`carried`): it is judged by the later one of the two. So whether it is late
does not depend on when the task heard of the others (`pass_to`), that is, on where micro-batches were cut.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from suiro.streams.stores.ordered import OrderedMap

UNKNOWN = -1
"""Before the first record."""

_DELAYS = "$delays"
"""The names of kept delays begin with this."""
_INT64 = struct.Struct(">q")


class OperatorTime:
    __slots__ = ("carried", "closed", "current", "delay", "was_passed")

    def __init__(self) -> None:
        self.current = UNKNOWN
        """The time by which windows are closed; `UNKNOWN` before the first record."""
        self.closed = UNKNOWN
        """The time by which the operator has closed windows; set by the operator."""
        self.delay = UNKNOWN
        """How long the operator waits until it closes windows, see `closes_after`."""
        self.carried = UNKNOWN
        """How far the partition of the current record had come upstream; set by the task."""
        self.was_passed = False
        """True if records in other tasks advanced the time, and no record here has since."""

    def observe(self, timestamp: int) -> int:
        """Advances time by a record. Returns the time that the record is judged by, its own included."""
        if timestamp > self.current:
            self.current = timestamp
            self.was_passed = False
        return self.current if self.current > self.carried else self.carried

    def pass_to(self, time: int) -> None:
        """Advances time: all later records carry this time or a later one."""
        if UNKNOWN < self.current < time:
            self.current = time
            self.was_passed = True

    def closes_after(self, delay_ms: int) -> int:
        """Sets how long after its start or end an operator closes a window, grace included. Each operator that closes
        windows calls this when it is made. Returns by how much the delay differs from that of the kept state, because
        grace may change.

        `closed` moves by the difference, so that closed windows stay closed and no open window is skipped.
        """
        changed = 0 if self.delay == UNKNOWN else delay_ms - self.delay
        self.delay = delay_ms
        if changed and self.closed != UNKNOWN:
            self.closed += changed
        return changed

    def keep(self, rows: OrderedMap, name: str) -> None:
        """Writes changed times to the map. `name`: that of the operator; empty for its task."""
        for key, number in zip(_keys(name), (self.current, self.closed, self.delay), strict=True):
            if number != UNKNOWN:
                keep_number(rows, key, number)

    def restore(self, rows: OrderedMap, name: str) -> None:
        """Reads what `keep` wrote."""
        self.current, self.closed, self.delay = (number_at(rows, key) for key in _keys(name))


def _keys(name: str) -> tuple[bytes, bytes, bytes]:
    return f"{name}\0current".encode(), f"{name}\0closed".encode(), f"{_DELAYS}\0{name}".encode()


def keep_number(rows: OrderedMap, key: bytes, number: int) -> None:
    """Writes a number under a key, unless it is there already."""
    data = _INT64.pack(number)
    if rows.get(key) != data:
        rows.put(key, data)


def number_at(rows: OrderedMap, key: bytes) -> int:
    """Returns the number that was kept under a key; `UNKNOWN` if there is none."""
    data = rows.get(key)
    return UNKNOWN if data is None else int(_INT64.unpack(data)[0])


def numbers_of(rows: OrderedMap, prefix: bytes) -> Iterator[tuple[bytes, int]]:
    """Yields the numbers that were kept under keys that begin with the prefix, and what follows it in each key."""
    for key, data in rows.prefix(prefix):
        yield key.removeprefix(prefix), int(_INT64.unpack(data)[0])
