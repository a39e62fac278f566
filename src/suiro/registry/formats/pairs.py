"""Compares two graphs of types part by part, each pair of parts once.

Types can refer to themselves. A pair that is reached again while it is being compared counts as compatible; it is, if
everything else in the cycle is. So a verdict "compatible" can depend on a pair that is still open. It is kept, and
dropped if that pair turns out to be incompatible. A verdict "incompatible" depends on nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from suiro.registry.formats.budget import Budget

if TYPE_CHECKING:
    from suiro.registry.formats.parsed import Incompatibility

_ON_NOTHING = 1 << 60


class Pairs:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._known: dict[Hashable, list[Incompatibility]] = {}
        self._open: dict[Hashable, int] = {}  # and how deep
        self._rests_on: dict[Hashable, int] = {}  # the outermost open pair of each provisional verdict
        self._for_now: list[Hashable] = []
        self._outermost = _ON_NOTHING  # the outermost open pair met since the innermost one was opened
        self._around: list[tuple[int, int]] = []  # of each open pair: `_outermost` and `_for_now` before it

    def known(self, pair: Hashable) -> list[Incompatibility] | None:
        """Returns the verdict of a pair that was met before, with only its first difference. None: the caller decides,
        and calls `decided`. If it raises instead, it must not compare anything after that.

        If `pair` has ids of objects, the caller keeps the objects alive. Raises `TooComplex`.
        """
        self._budget.spend()
        known = self._known.get(pair)
        if known is not None:
            self._outermost = min(self._outermost, self._rests_on.get(pair, _ON_NOTHING))
            return known
        depth = self._open.get(pair)
        if depth is not None:
            self._outermost = min(self._outermost, depth)
            return []
        self._open[pair] = len(self._open)
        self._around.append((self._outermost, len(self._for_now)))
        self._outermost = _ON_NOTHING
        return None

    def decided(self, pair: Hashable, found: list[Incompatibility]) -> list[Incompatibility]:
        depth = self._open.pop(pair)
        inside, (self._outermost, first) = self._outermost, self._around.pop()
        if found:
            for one in self._for_now[first:]:
                del self._known[one], self._rests_on[one]
            del self._for_now[first:]
        elif inside < depth:
            self._rests_on[pair] = inside
            self._for_now.append(pair)
            self._outermost = min(self._outermost, inside)
        else:
            for one in self._for_now[first:]:
                del self._rests_on[one]
            del self._for_now[first:]
        self._known[pair] = found[:1]
        return found
