"""The Processor API: users' own operators, with stores and punctuators (KIP-478, KIP-820).

A processor is any object with `process(record)`; `init(context)` and `close()` are optional. Its supplier makes one for
each task; on Spark, one for each micro-batch of a task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from suiro.errors import UsageError
from suiro.streams.dsl.checks import python_function
from suiro.streams.durations import milliseconds
from suiro.streams.operators.context import Context
from suiro.streams.operators.keys import is_same
from suiro.streams.punctuation import Cancellable, PunctuationType
from suiro.streams.records import LATEST_MS, Origin, Record
from suiro.streams.serdes.primitives import integer_of
from suiro.streams.topology.nodes import Process
from suiro.streams.windows import Duration


class Processor(Protocol):
    """An object with `process(record)`. It may also have `init(context)`, which gets a `ProcessorContext`, and
    `close()`."""

    def process(self, record: Record) -> None: ...


class ProcessorContext:
    """The view that a processor has of its task."""

    def __init__(self, context: Context, operator: Process) -> None:
        self._context = context
        self._fixed_key = operator.fixed_key
        self._stores = operator.stores
        self._record: Record | None = None

    def forward(self, record: Record, child: str | None = None) -> None:
        """Sends a record to all children, or to the one of that name."""
        if self._fixed_key and self._record is not None and not is_same(record.key, self._record.key):
            raise UsageError(
                f"process_values of {self._context.node.name} forwarded key {record.key!r} while it processed "
                f"key {self._record.key!r}; it must keep the key. Use process to change it"
            )
        time = integer_of(record.timestamp)
        if time is None or not 0 <= time <= LATEST_MS:
            raise UsageError(
                f"{self._context.node.name} forwarded a record with the timestamp {record.timestamp!r}; it must be an "
                "int, ms since the epoch"
            )
        if child is None:
            self._context.forward(record)
        elif child in self._context.children:
            self._context.children[child](record)
        else:
            raise UsageError(
                f"{self._context.node.name} has no child {child!r}; it has "
                f"{', '.join(self._context.children) or 'none'}"
            )

    def schedule(self, interval: Duration, type: PunctuationType, callback: Callable[[int], None]) -> Cancellable:
        """Calls `callback(time_ms)` as "stream-time" or "wall-clock-time" advances by the interval."""
        if type not in ("stream-time", "wall-clock-time"):
            raise UsageError(f'schedule(type={type!r}): a punctuator follows "stream-time" or "wall-clock-time"')
        python_function(callback, "the callback of schedule", "time_ms")
        interval_ms = milliseconds(interval, what="the interval of schedule")
        if interval_ms <= 0:
            raise UsageError(f"schedule(interval={interval!r}): an interval must be longer than 0 ms")

        def punctuate(time_ms: int) -> None:
            self._record = None  # a punctuator is outside of records
            callback(time_ms)

        now_ms = self._context.task.wall_clock_time if type == "wall-clock-time" else None
        return self._context.task.punctuators.schedule(self._context.node.name, interval_ms, type, punctuate, now_ms)

    def get_state_store(self, name: str) -> Any:
        """Returns a store that `process` names."""
        if name not in self._stores:
            raise UsageError(
                f"processor {self._context.node.name} has no access to store {name!r}; name it in "
                f"process(supplier, {name!r})"
            )
        store = self._context.store(name)
        return _GlobalRows(store) if store.spec.kind == "global" else store

    def current_stream_time_ms(self) -> int:
        """The latest timestamp of all records that this task was fed, and of those before them in the partitions that
        they come of; -1 before the first."""
        return self._context.task.stream_time

    def current_system_time_ms(self) -> int:
        """The wall clock of the micro-batch, the same if it runs again. With punctuators that follow the wall clock it
        moves on by their shortest interval."""
        return self._context.task.wall_clock_time

    def record_metadata(self) -> Origin | None:
        """Topic, partition and offset of the current record; None in a punctuator."""
        return self._context.task.origin

    @property
    def application_id(self) -> str:
        """As `KafkaStreams` has it."""
        return self._context.task.settings.application_id

    @property
    def partition(self) -> int:
        """The partition of the task."""
        return self._context.task.partition


class _GlobalRows:
    """A global table's store for processors, which may read it only."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("put", "delete")):
            raise UsageError(
                f"store {self._store.spec.name!r} is a global table, of which each task has a copy; write to its topic"
            )
        return getattr(self._store, name)


class ProcessRule:
    def __init__(self, operator: Process, context: Context) -> None:
        self._processor = operator.supplier()
        self._context = ProcessorContext(context, operator)

    def init(self) -> None:
        init = getattr(self._processor, "init", None)
        if init is not None:
            init(self._context)

    def process(self, record: Record, port: int) -> None:
        self._context._record = record
        self._processor.process(record)

    def close(self) -> None:
        close = getattr(self._processor, "close", None)
        if close is not None:
            close()
