"""A version that can be read, with what the server of reads needs of it, and the metrics of its reads.

Rollback conditions and `/metrics` use the metrics. Durations are counted in steps of 5 %, so a quantile is within 5 %
of the true value.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from suiro.views.definition import VersionSpec
from suiro.views.pipeline.follower import Follower
from suiro.views.store.tables import Store

STEP = 1.05
SHORTEST_MS = 0.01
STEPS = 400  # up to 0.01 ms * 1.05 ** 400, which is 50 minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    spec: VersionSpec
    store: Store
    follower: Follower
    metrics: ReadMetrics


def waking(changed: asyncio.Event) -> Callable[[], None]:
    """For `Follower.listen`: sets the event in the running loop."""
    loop = asyncio.get_running_loop()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(changed.set)

    return wake


@dataclass(frozen=True, slots=True)
class Reads:
    """`counts`: the answered reads by duration. `errors`: the reads that failed through no fault of the reader."""

    errors: int
    counts: tuple[int, ...]

    @property
    def reads(self) -> int:
        return self.errors + sum(self.counts)

    @property
    def p99_ms(self) -> float | None:
        """The duration that 99 % of the answered reads did not exceed; None without answered reads."""
        wanted = math.ceil(sum(self.counts) * 0.99)
        seen = 0
        for step, count in enumerate(self.counts):
            seen += count
            if count and seen >= wanted:
                return SHORTEST_MS * STEP**step
        return None

    def __sub__(self, earlier: Reads) -> Reads:
        counts = tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True))
        return Reads(self.errors - earlier.errors, counts)


class ReadMetrics:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._errors = 0
        self._counts = [0] * STEPS

    def answered(self, ms: float) -> None:
        step = 0 if ms <= SHORTEST_MS else min(STEPS - 1, math.ceil(math.log(ms / SHORTEST_MS, STEP)))
        with self._lock:
            self._counts[step] += 1

    def failed(self) -> None:
        with self._lock:
            self._errors += 1

    def snapshot(self) -> Reads:
        with self._lock:
            return Reads(self._errors, tuple(self._counts))
