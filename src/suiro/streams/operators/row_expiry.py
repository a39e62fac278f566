"""Expires rows of windowed tables after their retention, unless a table that they are joined with needs them.

A windowed table may lag behind the one it is joined with. Its updates meet the other's rows, so those stay until the
slower table has passed them, but no longer than a day beyond their retention: the slower table may get no more records.
(In Kafka Streams the slower table's updates find nothing.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from suiro.streams.stores.session import SessionStore
from suiro.streams.stores.window import WindowStore
from suiro.streams.times import OperatorTime
from suiro.streams.topology.nodes import TableTableJoin
from suiro.streams.topology.topology import SubTopology

_DAY_MS = 86_400_000


class _Task(Protocol):
    sub_topology: SubTopology


class OperatorContext(Protocol):
    """The members of `Context` and of `BlockContext` that the common parts of operators use."""

    time: OperatorTime

    @property
    def task(self) -> _Task: ...
    @property
    def drop(self) -> Callable[[str], None]: ...
    def store(self, name: str) -> Any: ...


class RowExpiry:
    """`delay_ms`: a row is removed when time is later than its start (the end of a session) by more than this."""

    def __init__(self, context: OperatorContext, store: WindowStore | SessionStore, delay_ms: int) -> None:
        self._store = store
        self._delay = delay_ms
        store.expires_before = context.time.closed - delay_ms
        self._joined = [context.store(name) for name in _joined_with(context, store.spec.name)]

    def time_is(self, time: int) -> None:
        """Removes the rows that are no longer needed."""
        limit = self._store.expires_before = time - self._delay
        if not self._joined:
            self._store.remove_before(limit)
            return
        slowest = min(limit, *(store.expires_before for store in self._joined))
        for store in (self._store, *self._joined):
            store.remove_before(max(slowest, store.expires_before - _DAY_MS))


def _joined_with(context: OperatorContext, name: str) -> list[str]:
    """Returns the other windowed stores that this one is joined with, directly or through others."""
    kinds = {spec.name: spec.kind for spec in context.task.sub_topology.stores}
    pairs = [
        {node.operator.left_store, node.operator.right_store}
        for node in context.task.sub_topology.nodes
        if isinstance(node.operator, TableTableJoin)
    ]
    found = {name}
    for _ in pairs:
        for pair in pairs:
            if pair & found and all(kinds.get(store) in ("window", "session") for store in pair):
                found |= pair
    return sorted(found - {name})
