"""Limits the lines of the log that others can cause as often as they like."""

from __future__ import annotations


class LogLimit:
    """At most `most` lines in each `every_ms`; the others are counted, for the next line."""

    def __init__(self, *, every_ms: int, most: int = 1) -> None:
        self._every_ms = every_ms
        self._most = most
        self._began_ms: int | None = None
        self._written = 0
        self._left_out = 0

    def take(self, now_ms: int) -> int | None:
        """Returns how many lines were left out since the last one, or None if this one is left out."""
        if self._began_ms is None or now_ms - self._began_ms >= self._every_ms:
            self._began_ms, self._written = now_ms, 0
        if self._written >= self._most:
            self._left_out += 1
            return None
        self._written += 1
        left_out, self._left_out = self._left_out, 0
        return left_out
