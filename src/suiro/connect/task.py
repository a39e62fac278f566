"""Shared code of source and sink tasks: their context, their progress, and batches of records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from suiro.client import Client, NewTopic, TransactionalBatch
from suiro.clock import Clock, SystemClock
from suiro.connect.connectors import Headers
from suiro.errors import FencedError, TransientError
from suiro.protocol import columnar
from suiro.telemetry import Traces

TRANSACTION_TIMEOUT_MS = 60_000


@dataclass(slots=True)
class Progress:
    """The progress of a task; written by its thread, read by others."""

    records: int = 0  # written by a source, taken by a sink, since the process started
    rejected: int = 0
    commits: int = 0
    lag: int | None = None  # records that a sink has not stored; for a source, in its own units
    offsets: dict[str, int] = field(default_factory=dict)  # of a sink: {"topic-partition": next offset}
    waits_for: str | None = None  # of a sink: a topic that does not exist yet
    capture: Callable[[], Mapping[str, Any]] | None = None  # of a capture: its snapshots and schema changes
    capture_metrics: tuple[str, Any] | None = None  # of a capture: its name and its `CaptureStatus`


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """The context of a connector's task."""

    name: str
    bootstrap_servers: str
    client_settings: Mapping[str, str | int] = field(default_factory=dict)
    registry: str | None = None  # its URL
    clock: Clock = field(default_factory=SystemClock)
    stopping: threading.Event = field(default_factory=threading.Event)
    progress: Progress = field(default_factory=Progress)
    traces: Traces | None = None
    folder: Path = field(default_factory=Path)  # paths of the configuration are relative to its file
    reach: Callable[[str], None] = lambda point: None  # for tests, which stop the process at a named point

    def client(self) -> Client:
        settings = {"client.id": f"suiro-connect-{self.name}", **self.client_settings}
        return Client(self.bootstrap_servers, settings=settings, clock=self.clock)


class Task(Protocol):
    """Runs one connector. `run` returns when `context.stopping` is set; an error restarts it.

    A task may have a method `datasets(context) -> Datasets`, for OpenLineage."""

    def run(self, context: TaskContext) -> None: ...


class Ended(Exception):
    """A task asks for an immediate restart, for example because partitions were added."""


@contextmanager
def one_transaction(clock: Clock) -> Iterator[None]:
    """Encloses a transaction from its first request to its end. The coordinator fences a producer whose transaction was
    open for too long (a machine that slept). Then no other process took over, so this raises `TransientError`."""
    began_ms = clock.wall_ms()
    try:
        yield
    except FencedError as error:
        took_ms = clock.wall_ms() - began_ms
        if took_ms < TRANSACTION_TIMEOUT_MS:
            raise
        raise TransientError(
            f"the transaction was open for {took_ms} ms, longer than {TRANSACTION_TIMEOUT_MS}, so the coordinator "
            "aborted it"
        ) from error


class Outgoing(NamedTuple):
    """An encoded record to write. `partition` None: by the key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    partition: int | None = None


class Topics:
    """The numbers of partitions of the topics that are written to. Creates topics that do not exist."""

    def __init__(self, client: Client, *, partitions: int) -> None:
        self._client = client
        self._partitions = partitions
        self._counts: dict[str, int] = {}

    def count(self, topic: str) -> int:
        if topic not in self._counts:
            info = self._client.metadata([topic]).get(topic)
            if info is None:
                self._client.create_topics([NewTopic(topic, self._partitions)], exist_ok=True)
                info = self._client.metadata([topic])[topic]
            self._counts[topic] = len(info.partitions)
        return self._counts[topic]


def batches_of(
    records: Iterable[Outgoing],
    topics: Topics,
    *,
    turn: int,
    compression: int,
    max_bytes: int = columnar.DEFAULT_MAX_BATCH_BYTES,
) -> list[TransactionalBatch]:
    """Returns batches of all records, which keep their order within a partition. Records with a key go to the partition
    that Kafka's producers choose. All records without a key go to one partition, another one with every `turn`.
    `max_bytes`: of a batch with several records."""
    by_topic: dict[str, list[Outgoing]] = {}
    for record in records:
        by_topic.setdefault(record.topic, []).append(record)
    return [
        TransactionalBatch(topic, batch.partition, batch.data, batch.count, batch.crc_tail)
        for topic, items in by_topic.items()
        for batch in _encode(items, topics.count(topic), turn, compression, max_bytes)
    ]


def _encode(
    items: Sequence[Outgoing], count: int, turn: int, compression: int, max_bytes: int
) -> list[columnar.EncodedBatch]:
    keys = pa.array([item.key for item in items], pa.binary())
    partitions = columnar.partitions_of(keys, count)
    partitions = np.where(partitions < 0, np.int32(turn % count), partitions)
    for at, item in enumerate(items):
        if item.partition is not None:
            partitions[at] = item.partition
    headers: Any = None
    if any(item.headers for item in items):
        rows = [[{"key": name, "value": value} for name, value in item.headers] for item in items]
        headers = pa.array(rows, columnar.HEADERS_TYPE)
    return columnar.encode(
        keys=keys,
        values=pa.array([item.value for item in items], pa.binary()),
        timestamps=np.array([item.timestamp_ms for item in items], np.int64),
        partitions=partitions,
        num_partitions=count,
        headers=headers,
        compression=compression,
        max_batch_bytes=max_bytes,
    )
