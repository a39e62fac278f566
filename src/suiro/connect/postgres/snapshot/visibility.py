"""Decides which transactions a snapshot sees, and so whether a row is older or newer than a change of the stream."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suiro.connect.postgres.encoding.blocks import Int64s

KEPT = 100_000  # more are forgotten, and everything open is waited for
_HALF = 1 << 31
_ALL = (1 << 32) - 1

Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Visibility:
    """`pg_current_snapshot()`: below `end` all are finished but those `in_progress`. Numbers are the low 32 bits, but
    that of `begin`, below which all are finished.

    A standby does not tell which are in progress: between `begin` and `end` nothing is certain, but that it sees what
    it had replayed before (`replayed`: up to where in the log; None: not a standby).
    """

    begin: int
    end: int
    in_progress: Int64s
    replayed: int | None = None

    @classmethod
    def parse(cls, text: str, *, replayed: int | None = None) -> Visibility:
        """`10:20:10,14,15`."""
        begin, end, open_ = text.split(":")
        numbers = [int(number) & _ALL for number in open_.split(",") if number]
        return cls(int(begin), int(end) & _ALL, np.array(numbers, np.int64), replayed)

    def sees(self, xids: Int64s, lsns: Int64s) -> Booleans:
        """A boolean for each top transaction, all of them committed (`lsns`: there). True is certain."""
        if self.replayed is None:
            return _are_before(xids, self.end) & ~np.isin(xids, self.in_progress)
        seen: Booleans = _are_before(xids, self.begin & _ALL) | (lsns < self.replayed)
        return seen

    def misses(self, xids: Int64s, lsns: Int64s) -> Booleans:
        """As `sees`; true is certain here too, so of a standby both may be false."""
        return ~(self.sees(xids, lsns) if self.replayed is None else _are_before(xids, self.end))


def _are_before(xids: Int64s, xid: int) -> Booleans:
    # Transaction numbers go round; what is compared is never half a round apart.
    found: Booleans = ((xids - xid) & _ALL) >= _HALF
    return found


class RecentTransactions:
    """Those that were handed on lately, on a primary. A commit is in the log a moment before snapshots see it (with
    synchronous replication for as long as the standby is away), so a snapshot may be behind what the stream has given
    already: rows of such a snapshot would overwrite newer ones. (A standby decodes what it has replayed, and what it
    has replayed is visible.)

    A session does not know what its forerunners handed on, nor what lies before the slot. Everything of that had its
    number when the session began: `wait_for_all_before` a number given out since. The same holds for what is forgotten
    because it is too much. A number that is waited for stays: were a later one put in its place, then under load, with
    transactions that overlap, no number would ever be reached.
    """

    def __init__(self) -> None:
        self._xids: deque[Int64s] = deque()
        self._count = 0
        self._barrier = 0  # in 64 bits; 0: there is nothing to wait for
        self._next_barrier = 0  # for what was forgotten since
        self.is_incomplete = True  # `wait_for_all_before` has to be called before snapshots can be judged

    def wait_for_all_before(self, xid: int) -> None:
        """A transaction's number in 64 bits, given out by now."""
        self.is_incomplete = False
        if self._barrier:
            self._next_barrier = xid
        else:
            self._barrier = xid

    def add(self, xids: Int64s) -> None:
        if not len(xids):
            return
        self._xids.append(xids)
        self._count += len(xids)
        if self._count > KEPT:
            self._xids.clear()
            self._count = 0
            self.is_incomplete = True

    def all_seen_by(self, snapshot: Visibility) -> bool:
        """What this snapshot sees is forgotten: a later one sees it too."""
        for _ in range(2):
            if snapshot.begin >= self._barrier:
                self._barrier, self._next_barrier = self._next_barrier, 0
        unseen = [xids[~snapshot.sees(xids, np.zeros_like(xids))] for xids in self._xids]
        self._xids = deque(xids for xids in unseen if len(xids))
        self._count = sum(len(xids) for xids in self._xids)
        return not (self.is_incomplete or self._barrier or self._count)

    def blocking_transaction(self, snapshot: Visibility) -> int:
        """The transaction that this snapshot waits for, in 32 bits; where several are, one of them."""
        return snapshot.begin & _ALL if self._barrier or not self._xids else int(self._xids[0][0])
