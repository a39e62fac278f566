"""Operator time: how far event time has come for one operator of one task (`observedStreamTime` in Kafka Streams).

Unlike Kafka Streams' it survives restarts: a runner keeps `state()` with the stores.

A task may be fed by several lanes, one for each partition upstream whose records were brought together. Each record is
judged by the time of its own lane, so a lane that is ahead never makes another's records late, and windows are closed
by the lanes that still have records waiting in the log (`behind`): their minimum; the maximum of all once none has.
With one lane, which is what Kafka Streams' own test driver has, both are simply the maximum so far.

What was closed stays closed (`closed`), though a lane that had nothing in the log may come back with earlier records.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

__all__ = ["UNKNOWN", "OperatorTime"]

UNKNOWN = -1
"""Before the first record."""

_CLOSED = "\0closed"
"""Stands among the lanes in `state`; no lane is called so."""


class OperatorTime:
    __slots__ = ("_behind", "_lanes", "closed", "lane")

    def __init__(self) -> None:
        self.closed = UNKNOWN
        """The latest `closing` time by which an operator closed windows; whoever does sets it."""
        self._lanes: dict[str, int] = {}
        self._behind: Set[str] = frozenset()
        self.lane = ""  # set by the task: where the record in hand came from

    def observe(self, timestamp: int) -> int:
        """Takes note of a record in hand; gives the time it is judged by, which includes it."""
        known = self._lanes.get(self.lane, UNKNOWN)
        if timestamp > known:
            self._lanes[self.lane] = known = timestamp
        return known

    def advance(self, lane: str, timestamp: int) -> None:
        """A lane has come so far by records that this task does not get; other tasks do."""
        if timestamp > self._lanes.get(lane, UNKNOWN):
            self._lanes[lane] = timestamp

    @property
    def current(self) -> int:
        """The time of the lane in hand, without a new record."""
        return self._lanes.get(self.lane, UNKNOWN)

    @property
    def closing(self) -> int:
        """The time by which windows are closed; `UNKNOWN` before the first record."""
        lanes = self._lanes
        if self._behind:
            return min(lanes.get(lane, UNKNOWN) for lane in self._behind)
        return max(lanes.values(), default=UNKNOWN)

    def wait_for(self, behind: Set[str]) -> None:
        """Which lanes have records in the log that this task will get later."""
        self._behind = behind

    def state(self) -> dict[str, int]:
        return dict(self._lanes) if self.closed == UNKNOWN else {**self._lanes, _CLOSED: self.closed}

    def restore(self, lanes: Iterable[tuple[str, int]]) -> None:
        self._lanes.update(lanes)
        self.closed = self._lanes.pop(_CLOSED, self.closed)
