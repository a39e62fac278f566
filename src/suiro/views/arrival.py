"""Finds the joins of a view whose result depends on which of two records was processed first.

A stream record that joins a table takes the row that is there when it is processed. In live operation, that depends on
which record was written first; in a rebuild, on the timestamps. So two versions of the same code may differ in such
rows, and `compare` says so. All other results depend on the records alone, not on the boundaries of micro-batches.
Pure.
"""

from __future__ import annotations

from suiro.streams import Topology
from suiro.streams.topology.nodes import StreamGlobalTableJoin, StreamTableJoin


def by_arrival(topology: Topology) -> tuple[str, ...]:
    """Returns the names of these joins. A join with a versioned table and a grace period is none of them."""
    return tuple(
        node.name
        for node in topology.nodes
        if isinstance(node.operator, StreamGlobalTableJoin)
        or (isinstance(node.operator, StreamTableJoin) and not node.operator.grace_ms)
    )


def note_of(joins_by_version: dict[int, tuple[str, ...]]) -> str | None:
    """Returns a note for a comparison that finds differences, or None without such joins."""
    told = [f"version {number} by {', '.join(joins)}" for number, joins in joins_by_version.items() if joins]
    if not told:
        return None
    return (
        f"Some differences may come from the order of arrival and not from the code: {'; '.join(told)} joins each "
        "record of a stream with the row that a table has at that moment, which in a rebuild is decided by timestamps. "
        "A versioned table with grace=... makes it the same always."
    )
