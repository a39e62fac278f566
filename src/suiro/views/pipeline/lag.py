"""Measures how far one version of a view is behind another, by their cuts. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from suiro.views.cuts import Cut


def covers(cut: Cut, other: Cut) -> bool:
    """It reflects all that the other reflects, of the topics that both read."""
    topics = {topic for topic, _ in cut.inputs}
    return all(
        cut.inputs.get(place, 0) >= offset for place, offset in other.inputs.items() if place[0] in topics
    )


def lag_of(cut: Cut | None, serving: Iterable[Cut], now_ms: int) -> int | None:
    """For how long the serving version has had what this cut lacks; `serving`: its kept cuts, the newest first, of
    which no more are asked for than it takes. None if there is nothing to tell it by."""
    missing = None
    for one in serving:
        if cut is None:
            return None
        if covers(cut, one):
            break
        missing = one
    return 0 if missing is None else max(0, now_ms - missing.time_ms)
