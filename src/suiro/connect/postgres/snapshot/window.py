"""The snapshot window: rows that were read while changes flow, held until the stream has passed the point of reading.

Invariant: when the remaining rows are written, the topic has no newer value of any of their keys. A change that the
window's snapshot does not see is newer and removes its row. A change that the snapshot sees is older, and the row
stays. If a standby cannot decide, the change removes the row and is not completed from it.
See docs/decisions/0006-snapshots-beside-the-stream.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from suiro.connect.postgres.encoding.encoded_rows import EncodedRows
from suiro.connect.postgres.encoding.pgoutput import Int64s
from suiro.connect.postgres.snapshot.ranges import Range
from suiro.connect.postgres.snapshot.table_state import TableState
from suiro.connect.postgres.snapshot.visibility import Visibility
from suiro.connect.postgres.tables import TableSchema


@dataclass(eq=False, slots=True, kw_only=True)
class Window:
    """`watermark` is the message that the capture wrote into the WAL directly after it had read the rows. On a standby,
    where messages cannot be written, it is empty, and `end` is an LSN after everything that the snapshot sees.

    `read` is None for rows that were read by their keys; `reselect` holds those keys until a newer change arrives.
    `state` is the state of the table's snapshot when the rows were read. If it has been replaced, the rows are dropped.
    """

    table: str
    state: TableState | None
    schema: TableSchema
    rows: EncodedRows
    read: Range | None
    reselect: set[bytes]
    snapshot: Visibility
    lsn: int
    read_us: int
    watermark: str
    end: int
    _places: dict[bytes, int] = field(init=False)
    _kept: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self._places = {key: row for row, key in enumerate(self.rows.all_keys())}
        self._kept = np.ones(len(self.rows), np.bool_)

    def __contains__(self, key: bytes) -> bool:
        """Whether the window has a row with this key."""
        return key in self._places

    def value(self, key: bytes) -> bytes | None:
        """Returns the row as the snapshot has it, before any change that the snapshot does not see."""
        row = self._places.get(key)
        return None if row is None or not self._kept[row] else self.rows.value(row)

    def has_removed(self, key: bytes) -> bool:
        row = self._places.get(key)
        return row is not None and not self._kept[row]

    def remove(self, keys: Iterable[bytes]) -> None:
        """Removes rows that have newer changes."""
        for key in keys:
            self.reselect.discard(key)
            row = self._places.get(key)
            if row is not None:
                self._kept[row] = False

    def truncate(self, xids: Int64s, lsns: Int64s) -> None:
        """Removes all rows if the TRUNCATE, in one transaction committed at its LSN, may be newer. Rows that were
        inserted after it follow in the stream."""
        if not self.snapshot.sees(xids, lsns)[0]:
            self._kept[:] = False

    def remaining(self) -> Int64s:
        """Returns the indices of the rows to write."""
        return np.flatnonzero(self._kept)
