"""Staging for tasks that produce records step by step instead of receiving them from Spark.

Used like the sink's `write`, which it shares everything with: the records are encoded and staged in the task, and the
commit message goes to the driver, whoever carries it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from suiro.clock import SystemClock
from suiro.errors import UnknownTopicError
from suiro.spark import faults
from suiro.spark.options import SinkOptions
from suiro.spark.sink import CommitMessage, MicroBatchIdentity, staging_area, task_properties
from suiro.spark.staging import StagingWriter
from suiro.spark.stopping import is_active
from suiro.spark.waiting import Waiting

if TYPE_CHECKING:
    import pyarrow as pa


class StageOfTask:
    """A context manager; an error leaves no file behind. `properties`: as `task_properties` gives them, where what
    stages is not in a task of Spark."""

    def __init__(self, options: SinkOptions, properties: Mapping[str, str] | None = None) -> None:
        self._options = options
        self._properties = properties
        self._clock = SystemClock()
        self._writer: StagingWriter | None = None

    def __enter__(self) -> StageOfTask:
        from suiro.spark.connections import partition_counter

        properties = self._properties or task_properties()
        self.identity = MicroBatchIdentity(
            query_id=properties["sql.streaming.queryId"],
            run_id=properties.get("spark.jobGroup.id", ""),
            batch_id=int(properties["streaming.sql.batchId"]),
        )
        self._task, self._index = properties["task"], int(properties["task index"])
        self._area = staging_area(self._options, self.identity, properties)
        query_id = self.identity.query_id
        waiting = Waiting(
            clock=self._clock,
            limit_ms=self._options.waiting_limit_ms,
            is_wanted=lambda: is_active(query_id),
        )
        self._count = partition_counter(self._options, waiting=waiting, clock=self._clock)
        faults.reach("task_start", self.identity.batch_id)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, trace)

    def add(self, rows: pa.RecordBatch) -> None:
        """In the columns of `encoding.COLUMNS`; their topics exist."""
        if self._writer is None:
            self._writer = StagingWriter(self._area, f"{self.identity.batch_id}-{self._task}")
        from suiro.spark.encoding import encode_rows  # a driver imports this module, and encodes nothing

        encode_rows(
            [rows],
            self._writer,
            self._options,
            partition_count=self._count,
            task_index=self._index,
            clock=self._clock,
        )

    def finish(self) -> CommitMessage | None:
        """None where nothing was added."""
        if self._writer is None:
            return None
        records = self._writer.finish()
        faults.reach("task_staged", self.identity.batch_id)
        return CommitMessage(
            records, self.identity, None if self._area is None else str(self._area.directory)
        )

    def partition_count(self, topic: str) -> int:
        found = self._count(topic)
        if found is None:
            raise UnknownTopicError(
                f"topic {topic!r} does not exist; create it before writing to it",
                "UNKNOWN_TOPIC_OR_PARTITION",
            )
        return found
