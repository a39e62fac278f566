"""The limit of a long task: it ends when its time is over, its caller has gone, or the host stops."""

from __future__ import annotations

import threading

from suiro.clock import Clock, SystemClock
from suiro.errors import TransientError


class Limit:
    """Begins when it is created. `what`: the name of the task in the error, "the comparison". Thread-safe."""

    def __init__(
        self,
        what: str,
        *,
        stopping: threading.Event,
        seconds: float,
        gone: threading.Event | None = None,
        longer: str = "",
        clock: Clock | None = None,
    ) -> None:
        """`stopping`: set when the host ends. `gone`: set when nobody waits for the answer any more. `longer`: the end
        of the message, which says how to get more time."""
        self._what = what
        self._stopping = stopping
        self.seconds = seconds
        self._gone = gone
        self._longer = longer
        self._clock = clock or SystemClock()
        self._begun_ms = self._clock.monotonic_ms()

    @property
    def is_over(self) -> bool:
        return self._why() is not None

    def check(self, detail: str = "") -> None:
        """Raises `TransientError` once it is over. `detail`: the end of the message."""
        why = self._why()
        if why is not None:
            raise TransientError(f"{self._what} was ended after {self.elapsed_s:.0f} s: {why}{detail}")

    @property
    def elapsed_s(self) -> float:
        return (self._clock.monotonic_ms() - self._begun_ms) / 1000

    def _why(self) -> str | None:
        if self._stopping.is_set():
            return "the host ends"
        if self._gone is not None and self._gone.is_set():
            return "its caller has gone"
        if self.elapsed_s > self.seconds:
            return f"it may take {self.seconds:g} s{self._longer}"
        return None
