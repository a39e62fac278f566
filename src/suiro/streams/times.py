"""Operator time: the latest event time that an operator of a task has seen (`observedStreamTime` in Kafka Streams).

It is the latest timestamp of the records that reached the operator, and what closes windows. Unlike Kafka Streams' it
survives restarts: a runner keeps `state()` with the stores.

Where one task gets only some of the records of a partition upstream, because they were spread by key, a record also
carries how far its partition had come (`carried`): it is judged by the later one of the two. So whether it is late
does not depend on when the task heard of the others (`pass_to`), that is, on where micro-batches were cut.
"""

from __future__ import annotations

from collections.abc import Iterable

UNKNOWN = -1
"""Before the first record."""

LATEST_MS = (1 << 63) - 1
"""The latest time that Kafka has."""

_CLOSED = "closed"
_CURRENT = "current"


class OperatorTime:
    __slots__ = ("carried", "closed", "current", "delay", "was_passed")

    def __init__(self) -> None:
        self.current = UNKNOWN
        """The time by which windows are closed; `UNKNOWN` before the first record."""
        self.closed = UNKNOWN
        """The time by which the operator closed windows; whoever does sets it."""
        self.delay = UNKNOWN
        """How long the operator waits until it closes, see `closes_after`; kept with the times."""
        self.carried = UNKNOWN
        """Of the record in hand; set by the task."""
        self.was_passed = False
        """Time went on by records in other tasks, and not since by one here."""

    def observe(self, timestamp: int) -> int:
        """Takes note of a record in hand; gives the time it is judged by, which includes it."""
        if timestamp > self.current:
            self.current = timestamp
            self.was_passed = False
        return self.current if self.current > self.carried else self.carried

    def pass_to(self, time: int) -> None:
        """Everything that is still to come carries this time or a later one."""
        if UNKNOWN < self.current < time:
            self.current = time
            self.was_passed = True

    def closes_after(self, delay_ms: int) -> int:
        """How long after its window an operator closes it, grace included; each operator that closes says so when it is
        made. Gives by how much that differs from what it was when the state was written: grace may change.

        `closed` moves along, so that what was closed stays closed and nothing that was open is passed over.
        """
        changed = 0 if self.delay == UNKNOWN else delay_ms - self.delay
        self.delay = delay_ms
        if changed and self.closed != UNKNOWN:
            self.closed += changed
        return changed

    def state(self) -> dict[str, int]:
        found = {_CURRENT: self.current, _CLOSED: self.closed}
        return {name: time for name, time in found.items() if time != UNKNOWN}

    def restore(self, times: Iterable[tuple[str, int]]) -> None:
        for name, time in times:
            setattr(self, name, time)
