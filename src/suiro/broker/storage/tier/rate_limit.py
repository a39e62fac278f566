"""Limits the bytes a second that the tier's threads move."""

from __future__ import annotations

import threading
from collections.abc import Callable

from suiro.clock import Clock
from suiro.log.tier import RemoteStoreError


class RateLimit:
    """So many bytes a second, over all threads together; called before the bytes are moved."""

    def __init__(self, clock: Clock, limit: Callable[[], int]) -> None:
        self._clock = clock
        self._limit = limit
        self._lock = threading.Lock()
        self._free_at_ms = 0.0
        self._stopping = threading.Event()

    def __call__(self, size: int) -> None:
        """Wait until these bytes may be moved. Raises RemoteStoreError when the node stops."""
        with self._lock:
            now = self._clock.monotonic_ms()
            begin = max(self._free_at_ms, now)
            self._free_at_ms = begin + 1000 * size / self._limit()
        if self._stopping.wait((begin - now) / 1000):
            raise RemoteStoreError("the node stops")

    def stop(self) -> None:
        self._stopping.set()
