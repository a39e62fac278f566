"""Operators of tables: from a stream, filter, map, and to a stream. They exchange `Change`s."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from suiro.streams.operators.context import Context
from suiro.streams.operators.functions import callable_of
from suiro.streams.operators.keys import distinct
from suiro.streams.records import Change, Record
from suiro.streams.topology.nodes import TableFilter, TableMapValues, TableSource, ToStream


class TableSourceRule:
    """A null key is dropped, a null value deletes the row. Without versions, the order of offsets wins: an update
    with an older timestamp overwrites. With versions, updates beyond the history are dropped (KIP-889)."""

    def __init__(self, operator: TableSource, context: Context) -> None:
        self._store: Any = None if operator.store is None else context.store(operator.store)
        self._versioned = operator.versioned
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        key, new = record.key, record.value
        if key is None:
            self._context.drop("null key")
            return
        old, is_latest = None, True
        if self._versioned:
            # `put` gives None where the update is beyond the history, else whether it is now the latest version.
            found = self._store.get_with_timestamp(key)
            latest = self._store.put(key, new, record.timestamp)
            if latest is None:
                self._context.drop("beyond the history")
                return
            is_latest = latest
            old = None if found is None else found[0]
        elif self._store is not None:
            old = self._store.get(key)
            self._store.put(key, new, record.timestamp)
        self._forward(record.with_value(Change(new, old, is_latest)))


class TableStepRule:
    """A filter or a mapper of a table.

    A store that a user named is asked for the old row, and says whether an update is its latest or beyond its history.
    Rows that are kept for joins only are those of the table above, seen through this operator.
    """

    def __init__(self, operator: TableFilter | TableMapValues, context: Context) -> None:
        self._made = made_by(operator)
        self._leaves_out = leaves_out(operator)
        self._sends_old = operator.sends_old
        self._store: Any = None if operator.store is None else context.store(operator.store)
        self._is_named = self._store is not None and self._store.spec.named_by_user
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        change: Change = record.value
        key = record.key
        new = None if change.new is None else self._made(key, change.new)
        old = None
        if self._sends_old and self._is_named:
            old = self._store.get(key)
        elif self._sends_old and change.old is not None:
            old = self._made(key, change.old)
        if self._leaves_out and new is None and old is None:
            return
        is_latest = change.is_latest
        if self._store is not None:
            put = self._store.put(key, new, record.timestamp)
            if self._store.spec.kind == "versioned" and put is None:
                self._context.drop("beyond the history")
                return
            if self._is_named:
                is_latest = bool(put) if self._store.spec.kind == "versioned" else True
        self._forward(record.with_value(Change(new, old, is_latest)))


TableFilterRule = TableMapValuesRule = TableStepRule


def made_by(operator: TableFilter | TableMapValues) -> Callable[[Any, Any], Any]:
    """(key, value) of a row above -> the row's value here; None: there is no row."""
    if isinstance(operator, TableMapValues):
        mapper = callable_of(operator.mapper, "value")
        return lambda key, value: mapper(value)
    predicate, wanted = callable_of(operator.predicate, "key_value"), not operator.negated
    return lambda key, value: value if bool(predicate(key, value)) is wanted else None


def leaves_out(operator: TableFilter | TableMapValues) -> bool:
    """Whether a tombstone is left out where it is known that there was no row before."""
    return isinstance(operator, TableFilter) and operator.sends_old and not operator.of_versions


class ToStreamRule:
    """Forwards updates as records and deletions as tombstones. If the runner coalesces, it forwards only a key's last
    update of the batch."""

    def __init__(self, operator: ToStream, context: Context) -> None:
        self._context = context
        self._forward = context.forward
        self._waiting: dict[Hashable, tuple[Record, int]] | None = {} if context.task.settings.coalesces else None

    def process(self, record: Record, port: int) -> None:
        if self._waiting is None:
            self._send(record)
            return
        try:
            key = distinct(record.key)
        except TypeError:  # a key that cannot be hashed, a dict say
            self._send(record)
            return
        self._waiting.pop(key, None)  # so that the order is that of last updates
        self._waiting[key] = record, self._context.time.carried

    def end_of_batch(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for record, carried in waiting.values():
                self._context.task.carry(carried)
                self._send(record)

    def _send(self, record: Record) -> None:
        self._forward(record.with_value(record.value.new))
