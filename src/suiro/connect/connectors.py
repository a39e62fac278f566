"""The interfaces of sources and sinks, and the values that they exchange with the runtime.

A connector is created by `cls(settings, about)`, which does no I/O and raises `SettingError` for invalid settings. One
thread then calls `open`, uses it, and calls `close`. After an error it is closed and opened again from the last stored
position or offsets, so other state must not matter.

A source is exactly once because the runtime writes the result of `poll` and the position after it in one Kafka
transaction. A sink is exactly once if it stores `SinkBatch.next_offsets` atomically with the batch and returns them
after `open`. Otherwise the runtime commits offsets after the batch, and the sink can receive records twice after a
crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from suiro.clock import Clock
from suiro.errors import TransientError, UsageError
from suiro.foundation.types import TopicPartition
from suiro.telemetry import Dataset

Headers = tuple[tuple[str, bytes | None], ...]

ERROR_PREFIX = "__connect.errors."
"""Of the names of headers that tell of the error, in a dead letter."""

MAX_REASON_CHARS = 1_000
"""The limit of the reason in a dead letter. It may quote the record, and a record that is also in its header could be
larger than the broker accepts."""


class BadRecordError(UsageError):
    """A record was rejected, and there is no dead letter topic."""


def short_reason(reason: object) -> str:
    """Returns the reason as text that UTF-8 can encode: it may quote half of a surrogate pair."""
    text = str(reason)
    text = text if len(text) <= MAX_REASON_CHARS else f"{text[:MAX_REASON_CHARS]}..."
    return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Facts about a connector, given when it is created."""

    name: str
    folder: Path  # of the configuration's file; paths in it are relative to it
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """A record to write. In `value` and `key`, bytes and None are written as they are, a str in UTF-8, anything else by
    the connector's format. `topic` None: the connector's own topic. `timestamp_ms` None: now."""

    value: Any
    key: Any = None
    topic: str | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """The next records of a source, and the position behind them (None: it has not changed). `rejected` go to the dead
    letter topic. `parts`: the changed parts of the position of a `MultiPartSource` (None: forget the part)."""

    records: Sequence[SourceRecord]
    position: Mapping[str, Any] | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)
    rejected: Sequence[SourceRecord] = ()


class Source(Protocol):
    def open(self, position: dict[str, Any] | None) -> None:
        """Continues behind `position`, that of the last committed `Polled`; None at the first start."""
        ...

    def poll(self) -> Polled | None:
        """Returns the next records, which are committed together or not at all. Waits about a second at most, then
        returns None."""
        ...

    def close(self) -> None:
        """Releases all resources. Called after each `open`, also when that failed."""
        ...


@runtime_checkable
class CommitListener(Protocol):
    def committed(self) -> None:
        """Called after the result of the last `poll` was committed."""
        ...


@runtime_checkable
class RefusingSource(Protocol):
    def refuse(self, reasons: Mapping[int, str]) -> Polled | None:
        """Called without a dead letter topic: tells the senders of these records of the last `poll`, by their places,
        why they cannot be written. Returns the other records, or None if there are none. A source without this method
        fails."""
        ...


@runtime_checkable
class MultiPartSource(Protocol):
    def open_parts(self, parts: dict[str, Any]) -> None:
        """Called before `open` with every part of the position that is stored."""
        ...


@runtime_checkable
class DatasetReporter(Protocol):
    def datasets(self) -> Sequence[Dataset]:
        """Returns the datasets outside of Kafka that it reads or writes, for OpenLineage. Called by other threads."""
        ...


@runtime_checkable
class LagReporter(Protocol):
    def lag(self) -> int | None:
        """Returns the remaining amount, in units of the source. Called by other threads."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRecord:
    """A committed record. `key` and `value` are decoded by the connector's formats; None is null. `raw_key` and
    `raw_value` are their bytes. `fields`: the fields of the value's schema, with the types of `columns`; None if the
    format has no schema. `names` and `json_texts`: of key and value, see `schema_fields.Fields`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers
    raw_key: bytes | None
    raw_value: bytes | None
    fields: Mapping[str, str] | None = None
    names: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    json_texts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkBatch:
    """Records, which are in order within a partition, and the offsets behind them. `first_offsets` and `next_offsets`
    have all partitions of the batch, also those of which all records were rejected."""

    records: Sequence[SinkRecord]
    first_offsets: Mapping[TopicPartition, int]
    next_offsets: Mapping[TopicPartition, int]
    reject: Callable[[SinkRecord, str], None]
    """Rejects a record: writes it to the dead letter topic, with the reason, or raises `BadRecordError` without one."""
    settle: Callable[[], None]
    """Writes the dead letters. An `OffsetStoringSink` calls it directly before it commits. For others, the runtime
    writes them in one transaction with the offsets."""


class Sink(Protocol):
    def open(self) -> None: ...

    def put(self, batch: SinkBatch) -> None:
        """Returns once the batch is stored. An error restarts the connector, which continues with the same offsets."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class OffsetStoringSink(Protocol):
    def offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Returns the stored `next_offsets`, without partitions for which nothing was stored. Called after `open`."""
        ...


def check_expected(expected: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int], where: str) -> None:
    """For sinks that store offsets: raises `TransientError` unless the batch follows the stored offsets. A partition
    that is not in `found` is new."""
    for target, first in expected.items():
        stored = found.get(target)
        if stored is not None and stored != first:
            raise TransientError(
                f"{where} holds {target[0]}-{target[1]} up to offset {stored}, this connector was about to write from "
                f"{first} on: another process runs the same connector, or ran it until now. A restart goes on from "
                "what is stored; if this comes again and again, stop the other one"
            )
