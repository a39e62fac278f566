"""The rows of one chunk of a snapshot that was read while changes flow, until the stream has passed the reading.

Always true: when the rows that are left go out, the topic has no newer value of any of their keys. A change that the
chunk's snapshot does not see is newer and takes its row out; one that it sees is older, and the row stays.
(docs/decisions: snapshots beside the stream.)
"""

from __future__ import annotations

import numpy as np

from suiro.connect.postgres.avro_rows import EncodedRows
from suiro.connect.postgres.blocks import Int64s
from suiro.connect.postgres.ranges import Range
from suiro.connect.postgres.tables import Form
from suiro.connect.postgres.visibility import Visibility

__all__ = ["Window"]


class Window:
    """`mark` is what the capture wrote into Postgres's log right after the chunk was read."""

    def __init__(
        self,
        *,
        table: str,
        form: Form,
        rows: EncodedRows,
        read: Range,
        snapshot: Visibility,
        lsn: int,
        read_us: int,
        mark: str,
    ) -> None:
        self.table = table
        self.form = form
        self.rows = rows
        self.read = read
        self.snapshot = snapshot
        self.lsn = lsn
        self.read_us = read_us
        self.mark = mark
        self._places = {rows.key(row): row for row in range(len(rows))}
        self._kept = np.ones(len(rows), np.bool_)

    def value(self, key: bytes) -> bytes | None:
        row = self._places.get(key)
        return None if row is None or not self._kept[row] else self.rows.value(row)

    def change(self, changed: EncodedRows, xids: Int64s) -> None:
        """These records go out now; `xids` has each one's transaction."""
        newer = ~self.snapshot.sees(xids)
        for record in np.flatnonzero(newer).tolist():
            row = self._places.get(changed.key(record))
            if row is not None:
                self._kept[row] = False

    def truncate(self, xid: int) -> None:
        if not self.snapshot.sees(np.array([xid], np.int64))[0]:
            self._kept[:] = False

    def left(self) -> Int64s:
        """The rows to write."""
        return np.flatnonzero(self._kept)
