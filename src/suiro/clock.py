"""The only module that reads time, which a lint rule enforces. Other code takes a `Clock`, which tests can control."""

from __future__ import annotations

import threading
import time
from typing import Protocol

stopwatch_ns = time.perf_counter_ns
"""Nanoseconds from an unknown start, to measure durations. No decision depends on it."""

monotonic_s = time.monotonic
"""Seconds that never go backwards, for deadlines that no test controls; otherwise use a `Clock`."""

sleep_s = time.sleep
"""Sleeps. The thread must be allowed to block."""


class Clock(Protocol):
    """Wall-clock and monotonic time, both in whole milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch (UTC), as in the timestamps of records."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go backwards, for deadlines and timeouts."""
        ...

    def sleep_ms(self, ms: int) -> None:
        """Waits so long."""
        ...


class SystemClock:
    """The time of the machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, ms: int) -> None:
        threading.Event().wait(ms / 1000)


class ShiftedClock(SystemClock):
    """The machine's time, moved ahead: time passes as usual, and a test can skip some of it."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self._ahead_ms

    def advance(self, ms: int) -> None:
        if ms < 0:
            raise ValueError(f"time only goes forward, got {ms} ms")
        self._ahead_ms += ms


class ManualClock:
    """A clock that moves only when told to. Wall and monotonic time advance together."""

    def __init__(self, *, wall_ms: int = 1_000_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def sleep_ms(self, ms: int) -> None:
        """Advances the clock instead of waiting."""
        self.advance(ms)

    def advance(self, ms: int) -> None:
        if ms < 0:
            raise ValueError(f"time only goes forward, got {ms} ms")
        self._wall_ms += ms
        self._monotonic_ms += ms
