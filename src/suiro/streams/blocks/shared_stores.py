"""Which joins may run over blocks although they read a store that another operator writes.

A table's operator that writes a row and then sends one change, and joins that get this change: then a join can tell
which row each of its records must find (`table_rows`).
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
    """Who writes the store and who reads it, for each reader; None where the users must be an island."""
    writers = [node for node in users if getattr(node.operator, "store", None) == store]
    if len(writers) != 1 or not isinstance(writers[0].operator, _WRITERS):
        return None
    writer = writers[0]
    readers = [node for node in users if node is not writer]
    if not all(
        isinstance(node.operator, StreamTableJoin) and node.parents[1] == writer.name for node in readers
    ):
        return None
    return [(writer.name, reader.name) for reader in readers]
