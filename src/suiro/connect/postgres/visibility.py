"""Which transactions a snapshot sees: whether a row it read is older or newer than a change of the stream."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suiro.connect.postgres.blocks import Int64s

__all__ = ["RecentTransactions", "Visibility"]

KEPT = 100_000  # more are forgotten, and everything open is waited for
_HALF = 1 << 31
_ALL = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Visibility:
    """`pg_current_snapshot()`: below `end` all are finished but those `in_progress`. Numbers are the low 32 bits, but
    that of `begin`, below which all are finished."""

    begin: int
    end: int
    in_progress: Int64s

    @classmethod
    def parse(cls, text: str) -> Visibility:
        """`10:20:10,14,15`."""
        begin, end, open_ = text.split(":")
        numbers = [int(number) & _ALL for number in open_.split(",") if number]
        return cls(int(begin), int(end) & _ALL, np.array(numbers, np.int64))

    def sees(self, xids: Int64s) -> npt.NDArray[np.bool_]:
        """A boolean for each top transaction, all of them committed."""
        # Transaction numbers go round; what is compared is never half a round apart.
        before_end = ((xids - self.end) & _ALL) >= _HALF
        found: npt.NDArray[np.bool_] = before_end & ~np.isin(xids, self.in_progress)
        return found


class RecentTransactions:
    """Those that were handed on lately. A commit is in the log a moment before snapshots see it (with synchronous
    replication for as long as the standby is away), so a snapshot may be behind what the stream has given already: rows
    of such a snapshot would overwrite newer ones.

    A session does not know what its forerunners handed on, nor what lies before the slot. Everything of that had its
    number when the session began: `wait_for_all_before` a number given out since.
    """

    def __init__(self) -> None:
        self._xids: deque[Int64s] = deque()
        self._count = 0
        self._barrier: int | None = None

    @property
    def is_incomplete(self) -> bool:
        """`wait_for_all_before` has to be called before snapshots can be judged."""
        return self._barrier is None

    def wait_for_all_before(self, xid: int) -> None:
        """A transaction's number in 64 bits; 0: there is nothing to wait for."""
        self._barrier = xid

    def add(self, xids: Int64s) -> None:
        if not len(xids):
            return
        self._xids.append(xids)
        self._count += len(xids)
        if self._count > KEPT:
            self._clear()
            self._barrier = None

    def all_seen_by(self, snapshot: Visibility) -> bool:
        assert self._barrier is not None
        return snapshot.begin >= self._barrier and all(bool(snapshot.sees(xids).all()) for xids in self._xids)

    def forget(self) -> None:
        """All of them are seen by now: a later snapshot sees them too."""
        self._clear()
        self._barrier = 0

    def _clear(self) -> None:
        self._xids.clear()
        self._count = 0
