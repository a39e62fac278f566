"""Rows that were read while changes flow (a range, or keys that were owed), until the stream has passed the reading.

Always true: when the rows that are left go out, the topic has no newer value of any of their keys. A change that the
window's snapshot does not see is newer and takes its row out; one that it sees is older, and the row stays. Where a
standby cannot tell, the change takes its row out and is not completed from it.
(docs/decisions: snapshots beside the stream.)
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from suiro.connect.postgres.encoding.avro_rows import EncodedRows
from suiro.connect.postgres.server.blocks import Int64s
from suiro.connect.postgres.snapshot.ranges import Range
from suiro.connect.postgres.snapshot.table_state import TableState
from suiro.connect.postgres.snapshot.visibility import Visibility
from suiro.connect.postgres.tables import Form

__all__ = ["Window"]


class Window:
    """`mark` is what the capture wrote into Postgres's log right after the rows were read. Where nobody can write there
    (on a standby) it is empty, and `end` lies behind everything that the snapshot sees.

    `read`: None for owed keys, which are `owed` until a newer change is known. `state`: of the table's snapshot when
    the rows were read; with another one they are of no use any more.
    """

    def __init__(
        self,
        *,
        table: str,
        state: TableState | None,
        form: Form,
        rows: EncodedRows,
        read: Range | None,
        owed: Iterable[bytes] = (),
        snapshot: Visibility,
        lsn: int,
        read_us: int,
        mark: str,
        end: int = 0,
    ) -> None:
        self.table = table
        self.state = state
        self.form = form
        self.rows = rows
        self.read = read
        self.owed = set(owed)
        self.snapshot = snapshot
        self.lsn = lsn
        self.read_us = read_us
        self.mark = mark
        self.end = end
        self._places = {rows.key(row): row for row in range(len(rows))}
        self._kept = np.ones(len(rows), np.bool_)

    def __contains__(self, key: bytes) -> bool:
        """Whether its row was read."""
        return key in self._places

    def value(self, key: bytes) -> bytes | None:
        """As it is in the snapshot: what a change that the snapshot does not see has changed."""
        row = self._places.get(key)
        return None if row is None or not self._kept[row] else self.rows.value(row)

    def may_be_without(self, xids: Int64s, lsns: Int64s) -> npt.NDArray[np.bool_]:
        """Of each transaction, committed at its LSN: false where the rows have its changes for certain."""
        return ~self.snapshot.sees(xids, lsns)

    def is_without(self, xids: Int64s, lsns: Int64s) -> npt.NDArray[np.bool_]:
        """Of each transaction: true where the rows are as they were before it for certain."""
        return self.snapshot.misses(xids, lsns)

    def has_taken_out(self, key: bytes) -> bool:
        row = self._places.get(key)
        return row is not None and not self._kept[row]

    def take_out(self, keys: Iterable[bytes]) -> None:
        """There are newer changes of these."""
        for key in keys:
            self.owed.discard(key)
            row = self._places.get(key)
            if row is not None:
                self._kept[row] = False

    def truncate(self, xid: int, lsn: int) -> None:
        # Rows of after a TRUNCATE are in the stream behind it, all of them.
        if self.may_be_without(np.array([xid], np.int64), np.array([lsn], np.int64))[0]:
            self._kept[:] = False

    def left(self) -> Int64s:
        """The rows to write."""
        return np.flatnonzero(self._kept)
