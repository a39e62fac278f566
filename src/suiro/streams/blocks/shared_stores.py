"""Finds the joins that may run over blocks although they read a store that another operator writes.

The writer must be a table's operator that sends one change for each row that it writes, and the join must get these
changes. The join can then tell which row each of its records must find (`table_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence

from suiro.streams.topology.nodes import (
    Node,
    StreamAggregate,
    StreamTableJoin,
    TableAggregate,
    TableFilter,
    TableMapValues,
    TableSource,
)

_WRITERS = TableSource | TableFilter | TableMapValues | StreamAggregate | TableAggregate


def pairs_of(store: str, users: Sequence[Node]) -> list[tuple[str, str]] | None:
    """Returns the writer and the reader of the store, for each reader; None if the users of the store must be an
    island."""
    writers = [node for node in users if getattr(node.operator, "store", None) == store]
    if len(writers) != 1 or not isinstance(writers[0].operator, _WRITERS):
        return None
    writer = writers[0]
    readers = [node for node in users if node is not writer]
    if not all(isinstance(node.operator, StreamTableJoin) and node.parents[1] == writer.name for node in readers):
        return None
    return [(writer.name, reader.name) for reader in readers]
