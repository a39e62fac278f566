"""Measures how far one version of a view is behind another, by their cuts. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from suiro.views.cuts import Cut

SEEN_MAX = 1_000


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
        """Returns the time since this cut, or a later one, was seen; 0 if neither was."""
        at = bisect_left(self._numbers, cut.number)
        return now_ms - self._times[at] if at < len(self._times) else 0
