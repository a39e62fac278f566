"""The size of micro-batches for a long backlog: it doubles as long as a micro-batch stays short.

A micro-batch has a fixed cost: Spark's planning, a task for each partition, a transaction, and an update of nearly
every key in the output and in the store. A few large micro-batches rebuild a view with a fraction of the work. The
limit is their duration: it grows with the memory that their records need, and a throttle or a pause takes effect only
after the current micro-batch.
"""

from __future__ import annotations

LONGEST_MS = 5_000
TIMES_MAX = 8


class Stride:
    """The size for one planner. The caller passes the times."""

    def __init__(self, first: int) -> None:
        """`first`: the smallest limit."""
        self._first = first
        self._limit = first
        self._planned: tuple[int, int] | None = None  # when, and where the micro-batch began

    def limit(self, now_ms: int, position: int) -> int:
        """Returns the limit of the next micro-batch. `position`: the number of records ever read from all partitions.
        If it has grown since the last call, a micro-batch has ended."""
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
        elif took_ms * 2 * self._limit <= LONGEST_MS * read:  # twice the limit would take this long
            self._limit = min(self._limit * 2, self._first * TIMES_MAX)
