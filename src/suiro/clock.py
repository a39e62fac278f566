"""The only module that reads time; a lint rule holds the others to it. Rules take a `Clock`, so tests can turn it."""

from __future__ import annotations

import threading
import time
from typing import Protocol

stopwatch_ns = time.perf_counter_ns
"""Nanoseconds from an unknown start, for what a piece of work took. No rule depends on it."""

monotonic_s = time.monotonic
"""Seconds that never go backwards, for deadlines of waits that no test has to turn by hand; else take a `Clock`."""

sleep_s = time.sleep
"""Sleep. The thread must be one that may block."""


class Clock(Protocol):
    """Wall-clock and monotonic time, both in whole milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch (UTC): what a record's timestamp means."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go backwards: what deadlines and timeouts are measured with."""
        ...

    def sleep_ms(self, ms: int) -> None:
        """Let so much time go by."""
        ...


class SystemClock:
    """The machine's own time."""

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
        """Nobody waits: whoever sleeps turns the clock."""
        self.advance(ms)

    def advance(self, ms: int) -> None:
        if ms < 0:
            raise ValueError(f"time only goes forward, got {ms} ms")
        self._wall_ms += ms
        self._monotonic_ms += ms
