"""Tables: rows from a stream, filtered, mapped, and back to a stream. Between these operators travel `Change`s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.streams.nodes import GlobalTableSource, TableFilter, TableMapValues, TableSource, ToStream
from suiro.streams.operators.functions import callable_of
from suiro.streams.records import Change, Record

if TYPE_CHECKING:
    from suiro.streams.task import Context

__all__ = [
    "GlobalTableSourceRule",
    "TableFilterRule",
    "TableMapValuesRule",
    "TableSourceRule",
    "ToStreamRule",
]


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


class GlobalTableSourceRule:
    """Fills the store that every task reads."""

    def __init__(self, operator: GlobalTableSource, context: Context) -> None:
        self._store = context.store(operator.store)
        self._context = context

    def process(self, record: Record, port: int) -> None:
        if record.key is None:
            self._context.drop("null key")
        else:
            self._store.put(record.key, record.value, record.timestamp)


class TableFilterRule:
    """A row that no longer passes becomes a tombstone; none is sent if it is known that the old row did not pass."""

    def __init__(self, operator: TableFilter, context: Context) -> None:
        self._predicate = callable_of(operator.predicate, "key_value")
        self._wanted = not operator.negated
        self._knows_old = operator.knows_old
        self._store = None if operator.store is None else context.store(operator.store)
        # A store without versions has whatever came last; what is below goes by that.
        self._keeps_versions = self._store is None or self._store.spec.kind == "versioned"
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        change: Change = record.value
        new = self._passed(record.key, change.new)
        old = self._passed(record.key, change.old) if self._knows_old else None
        if self._knows_old and new is None and old is None:
            return
        if self._store is not None:
            self._store.put(record.key, new, record.timestamp)
        self._forward(record.with_value(Change(new, old, change.is_latest or not self._keeps_versions)))

    def _passed(self, key: Any, value: Any) -> Any:
        if value is None:
            return None
        return value if bool(self._predicate(key, value)) is self._wanted else None


class TableMapValuesRule:
    def __init__(self, operator: TableMapValues, context: Context) -> None:
        self._mapper = callable_of(operator.mapper, "value")
        self._store = None if operator.store is None else context.store(operator.store)
        # A store without versions has whatever came last; what is below goes by that.
        self._keeps_versions = self._store is None or self._store.spec.kind == "versioned"
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        change: Change = record.value
        new = None if change.new is None else self._mapper(change.new)
        old = None if change.old is None else self._mapper(change.old)
        if self._store is not None:
            self._store.put(record.key, new, record.timestamp)
        self._forward(record.with_value(Change(new, old, change.is_latest or not self._keeps_versions)))


class ToStreamRule:
    """Updates as records, deletions as tombstones. Where the runner coalesces, a key's last update of the batch."""

    def __init__(self, operator: ToStream, context: Context) -> None:
        self._mapper = None if operator.mapper is None else callable_of(operator.mapper, "key_value")
        self._context = context
        self._forward = context.forward
        self._waiting: dict[Any, tuple[Record, int]] | None = {} if context.settings.coalesces else None

    def process(self, record: Record, port: int) -> None:
        if self._waiting is None:
            self._send(record)
            return
        try:
            self._waiting.pop(record.key, None)  # so that the order is that of last updates
            self._waiting[record.key] = record, self._context.time.carried
        except TypeError:  # a key that cannot be hashed, a dict say
            self._send(record)

    def end_of_batch(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for record, carried in waiting.values():
                self._context.carry(carried)
                self._send(record)

    def _send(self, record: Record) -> None:
        value = record.value.new
        key = record.key if self._mapper is None else self._mapper(record.key, value)
        self._forward(Record(key, value, record.timestamp, record.headers))
