"""The progress of a version: position, rate, time left, and whether it has caught up. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from suiro.foundation.types import TopicPartition

READY_WITHIN_MS = 10_000
WINDOW_MS = 15_000

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`done`: the input records read so far, of `total`. `rate`: records per second. `left_s`: the time that the rest
    takes at this rate, None if unknown."""

    done: int
    total: int
    rate: float
    left_s: float | None


class Speed:
    """The rate over the last `WINDOW_MS`."""

    def __init__(self, starts: Offsets) -> None:
        """`starts`: the first offsets of the inputs."""
        self._starts = starts
        self._seen: deque[tuple[int, int]] = deque()

    def progress(self, now_ms: int, at: Offsets, ends: Offsets) -> Progress:
        starts = {place: self._starts.get(place, 0) for place in ends}
        total = sum(end - starts[place] for place, end in ends.items())
        done = sum(min(end, max(starts[place], at.get(place, 0))) - starts[place] for place, end in ends.items())
        seen = self._seen
        seen.append((now_ms, done))
        while len(seen) > 2 and now_ms - seen[1][0] >= WINDOW_MS:
            seen.popleft()
        passed = now_ms - seen[0][0]
        rate = max(0.0, (done - seen[0][1]) * 1000 / passed) if passed else 0.0
        left_s = 0.0 if done >= total else (total - done) / rate if rate else None
        return Progress(done=done, total=total, rate=rate, left_s=left_s)


class Arrival:
    """Tells when a version has caught up with a moving target: when it reaches a target that was set shortly before."""

    def __init__(self) -> None:
        self._target: Offsets | None = None
        self._set_ms = 0

    def is_there(self, now_ms: int, at: Offsets, target: Offsets) -> bool:
        """`at`: the version's offsets. `target`: the offsets to reach, as of now."""
        if self._target is None:
            self._target, self._set_ms = target, now_ms
        if any(at.get(place, 0) < offset for place, offset in self._target.items()):
            return False
        if now_ms - self._set_ms <= READY_WITHIN_MS:
            return True
        self._target, self._set_ms = target, now_ms
        return all(at.get(place, 0) >= offset for place, offset in target.items())
