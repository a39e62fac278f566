"""A table's rows for a join in the same task: each record must find the row as it was when the record came.

A table's operator writes all rows of a block before the join gets any of them. So the store keeps what was replaced
(`KeyValueStore.replaced`), and the join gets the table's changes in the order of the puts, one for each. A record that
came before the n-th change of its key finds the row that this change replaced.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from suiro.streams.blocks.block import Block
from suiro.streams.blocks.order import ranks
from suiro.streams.serdes.block_forms import Failed
from suiro.streams.stores.decoded import Snapshot
from suiro.streams.stores.key_value import KeyValueStore

Find = Callable[[bytes, int], tuple[Any, int] | None]
"""(key bytes, row of the block) -> the table's row as it was at that row of the block: value and timestamp."""


class TableRows:
    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self._row_at = store.row_at
        self.keys_of: Callable[[Sequence[Any]], tuple[list[bytes | None], Failed]] = store.keys_of

    def finder(self, block: Block, changes: Block | None) -> Find:
        """`changes`: the changes that the table's operator sent while it wrote the rows of this block; None if there
        are none."""
        replaced, row_at = self._store.replaced, self._row_at
        if changes is None or not replaced:
            return lambda raw, row: row_at(raw)
        assert len(replaced) == len(changes), f"{self._store.spec.name}: {len(replaced)} puts, {len(changes)} changes"
        assert block.order is not None
        assert changes.order is not None
        rank, rank_of_change = ranks((block.order, changes.order))
        histories: dict[bytes, tuple[list[Any], list[Snapshot]]] = {}
        for place, (raw, before) in enumerate(replaced):
            when, rows = histories.setdefault(raw, ([], []))
            when.append(rank_of_change(place))
            rows.append(before)

        def find(raw: bytes, row: int) -> tuple[Any, int] | None:
            history = histories.get(raw)
            if history is None:
                return row_at(raw)
            place = bisect_left(history[0], rank(row))
            return row_at(raw) if place == len(history[0]) else self._store.row_of(history[1][place])

        return find
