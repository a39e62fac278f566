"""Measures how far one version of a view is behind another, by their cuts. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from suiro.views.cuts import Cut

SEEN_MAX = 1_000


def covers(cut: Cut, other: Cut) -> bool:
    """It reflects all that the other reflects, of the topics that both read."""
    topics = {topic for topic, _ in cut.inputs}
    return all(
        cut.inputs.get(place, 0) >= offset for place, offset in other.inputs.items() if place[0] in topics
    )


def lag_of(
    cut: Cut | None, serving: Iterable[Cut], now_ms: int, *, age_ms: Callable[[Cut], int] = lambda _: 0
) -> int | None:
    """For how long the serving version has had what this cut lacks; `serving`: its kept cuts, the newest first, of
    which no more are asked for than it takes. None if there is nothing to tell it by.

    `now_ms` is of the clock that cuts are made by. It may be set back, so a cut is as old as `age_ms` says, at least.
    """
    missing = None
    for one in serving:
        if cut is None:
            return None
        if covers(cut, one):
            break
        missing = one
    return 0 if missing is None else max(0, now_ms - missing.time_ms, age_ms(missing))


class SeenCuts:
    """When the cuts of a version were seen first, by a clock that is never set. Times are passed in."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._times: list[int] = []

    def note(self, cut: Cut, now_ms: int) -> None:
        if self._numbers and self._numbers[-1] >= cut.number:
            return
        self._numbers, self._times = (
            [*self._numbers[-SEEN_MAX:], cut.number],
            [*self._times[-SEEN_MAX:], now_ms],
        )

    def age_ms(self, cut: Cut, now_ms: int) -> int:
        """Since it was seen, or a later one; 0 where none was."""
        at = bisect_left(self._numbers, cut.number)
        return now_ms - self._times[at] if at < len(self._times) else 0
