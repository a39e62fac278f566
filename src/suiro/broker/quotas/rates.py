"""Measures the rate of a client as Apache Kafka does: pure arithmetic over given times.

`SampledRate` sums what was recorded in samples of a fixed length and divides by the time they cover; samples that a
new client does not have yet count as empty ones, so that its first burst is allowed. `TokenBucket` holds tokens that
come back at the quota's speed, up to a burst.
"""

from __future__ import annotations

from collections import deque

MAX_THROTTLE_MS = 2**31 - 1


class SampledRate:
    """Amount per second over the last `samples` samples of `sample_ms` each, the current one included."""

    __slots__ = ("_sample_ms", "_samples", "_total", "_windows", "last_ms")

    def __init__(self, *, samples: int, sample_ms: int) -> None:
        self._samples = samples
        self._sample_ms = sample_ms
        self._windows: deque[list[float]] = deque()  # [when it began, sum], oldest first
        self._total = 0.0
        self.last_ms = 0

    def record(self, amount: float, now_ms: int) -> None:
        self._forget(now_ms)
        windows = self._windows
        if not windows or now_ms - windows[-1][0] >= self._sample_ms:
            windows.append([now_ms, 0.0])
        windows[-1][1] += amount
        self._total += amount
        self.last_ms = now_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """The milliseconds until the rate is down to the quota, if nothing is recorded meanwhile."""
        self._forget(now_ms)
        if not self._windows or self._total <= 0:
            return 0
        covered_ms = self._covered_ms(now_ms)
        rate = self._total * 1000 / covered_ms if covered_ms else float("inf")
        if rate <= quota:
            return 0
        if quota <= 0 or rate == float("inf"):
            return MAX_THROTTLE_MS
        return min(MAX_THROTTLE_MS, int((rate - quota) / quota * covered_ms + 0.5))

    def _covered_ms(self, now_ms: int) -> float:
        covered = now_ms - self._windows[0][0]
        missing = self._samples - 1 - covered // self._sample_ms
        return covered + max(0, missing) * self._sample_ms

    def _forget(self, now_ms: int) -> None:
        windows = self._windows
        while windows and now_ms - windows[0][0] >= self._samples * self._sample_ms:
            self._total -= windows.popleft()[1]
        if not windows:
            self._total = 0.0  # the additions' rounding errors go too


class TokenBucket:
    """Tokens, filled at `quota` a second up to what `burst_s` seconds bring. It may go below zero once."""

    __slots__ = ("_burst_s", "_tokens", "last_ms")

    def __init__(self, *, burst_s: float) -> None:
        self._burst_s = burst_s
        self._tokens: float | None = None  # full
        self.last_ms = 0

    def take(self, amount: float, quota: float, now_ms: int) -> None:
        self._tokens = self._filled(quota, now_ms) - amount
        self.last_ms = now_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """The milliseconds until no tokens are missing."""
        tokens = self._filled(quota, now_ms)
        if tokens >= 0:
            return 0
        return min(MAX_THROTTLE_MS, int(-tokens / quota * 1000 + 0.5)) if quota > 0 else MAX_THROTTLE_MS

    def _filled(self, quota: float, now_ms: int) -> float:
        burst = quota * self._burst_s
        if self._tokens is None:
            return burst
        return min(burst, self._tokens + quota * (now_ms - self.last_ms) / 1000)
