"""The progress of a version: position, rate, time left, whether it has caught up, and its lag behind another. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from suiro.foundation.types import TopicPartition
from suiro.views.cuts import Cut

READY_WITHIN_MS = 10_000
WINDOW_MS = 15_000

Offsets = Mapping[TopicPartition, int]
SEEN_MAX = 1_000


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
        return Progress(done=done, total=total, rate=round(rate, 1), left_s=left_s)


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


def lag_of(
    cut: Cut | None, serving: Iterable[Cut], now_ms: int, *, age_ms: Callable[[Cut], int] = lambda _: 0
) -> int | None:
    """Returns for how long the serving version has had what this cut lacks, None if nothing shows it.

    `serving`: its kept cuts, the newest first; read only as far as needed. `now_ms` is of the clock that cuts are made
    by. That clock may be set back, so a cut is at least as old as `age_ms` says.
    """
    missing = None
    for one in serving:
        if cut is None:
            return None
        if cut.covers(one):
            break
        missing = one
    return 0 if missing is None else max(0, now_ms - missing.time_ms, age_ms(missing))


class SeenCuts:
    """The times at which the cuts of a version were seen first, by a clock that is never set back. The caller passes
    the times."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque(maxlen=SEEN_MAX)  # number, time

    def note(self, cut: Cut, now_ms: int) -> None:
        if not self._seen or self._seen[-1][0] < cut.number:
            self._seen.append((cut.number, now_ms))

    def age_ms(self, cut: Cut, now_ms: int) -> int:
        """Returns the time since this cut, or a later one, was seen; 0 if neither was."""
        return next((now_ms - time_ms for number, time_ms in list(self._seen) if number >= cut.number), 0)


class InputLag:
    """Measures for how long a version has lacked records of its inputs. The caller passes the times."""

    def __init__(self) -> None:
        self._ends: deque[tuple[int, int]] = deque()  # the time since which the inputs have so many records
        self.ms = 0

    def note(self, now_ms: int, done: int, total: int) -> None:
        """Notes how many of the `total` input records are in the output now."""
        if not self._ends or self._ends[-1][1] != total:
            self._ends.append((now_ms, total))
        while self._ends and self._ends[0][1] <= done:
            self._ends.popleft()
        self.ms = now_ms - self._ends[0][0] if self._ends else 0
