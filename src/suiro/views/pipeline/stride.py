"""The size of micro-batches for a long backlog: doubled each time, as long as a micro-batch stays short.

A micro-batch has a fixed cost: Spark's planning, a task for each partition, a transaction, and an update of nearly
every key in the output and in the store. A few large micro-batches rebuild a view with a fraction of the work. Their
duration limits them: it stands for the memory that their records need, and a throttle or pause waits until one is
over.
"""

from __future__ import annotations

LONGEST_MS = 5_000
TIMES_MAX = 8


class Stride:
    """Of one planner. Times are passed in."""

    def __init__(self, first: int) -> None:
        """`first`: how many there may be at any time."""
        self._first = first
        self._limit = first
        self._planned: tuple[int, int] | None = None  # when, and where the micro-batch began

    def limit(self, now_ms: int, position: int) -> int:
        """Of the micro-batch that is planned now. `position`: how many records were ever read, all partitions
        together; where it grew since the last call, a micro-batch has ended."""
        if self._planned is not None:
            planned_ms, begun = self._planned
            self._learn(now_ms - planned_ms, position - begun)
        self._planned = now_ms, position
        return self._limit

    def _learn(self, took_ms: int, read: int) -> None:
        if read <= 0:
            return
        if took_ms > LONGEST_MS:
            self._limit = max(self._first, self._limit // 2)
        elif took_ms * 2 * self._limit <= LONGEST_MS * read:  # so long would twice as many take
            self._limit = min(self._limit * 2, self._first * TIMES_MAX)
