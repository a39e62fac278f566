"""The sink's side in a task: encodes records, and stages them for the driver.

`stage` takes all rows that Spark gives to a task. `StageOfTask` is for tasks that make their records step by step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suiro.clock import SystemClock
from suiro.spark import faults, staging
from suiro.spark.options import SinkOptions
from suiro.spark.reports import CommitMessage, MicroBatchIdentity
from suiro.spark.staging import StagingArea, StagingWriter
from suiro.spark.stopping import is_active
from suiro.spark.waiting import Waiting

if TYPE_CHECKING:
    import pyarrow as pa


class StageOfTask:
    """A context manager; an error leaves no file behind. `properties`: as `task_properties` gives them, where the
    records are not made in a task of Spark. `identity`: of the micro-batch, by default the one that the properties
    name. `waits`: for a log that is away."""

    def __init__(
        self,
        options: SinkOptions,
        properties: Mapping[str, str] | None = None,
        *,
        identity: MicroBatchIdentity | None = None,
        waits: bool = True,
    ) -> None:
        self._options = options
        self._properties = properties
        self._identity = identity
        self._waits = waits
        self._clock = SystemClock()
        self._writer: StagingWriter | None = None
        self._exits = ExitStack()

    def __enter__(self) -> StageOfTask:
        from suiro.spark.connections import partition_counter

        properties = self._properties or task_properties()
        self.identity = self._identity or MicroBatchIdentity.of_task(properties)
        self._task, self._index = properties["task"], int(properties["task index"])
        self._area = staging_area(self._options, self.identity, properties)
        self._waiting = Waiting(
            clock=self._clock,
            limit_ms=self._options.waiting_limit_ms if self._waits else 0,
            is_wanted=self.waits_on,
        )
        self.partition_count = partition_counter(self._options, waiting=self._waiting, clock=self._clock)
        faults.reach("task_start", self.identity.batch_id)
        self._exits.enter_context(staging.keeper.during([] if self._area is None else [self._area]))
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._exits.__exit__(*exc_info)

    def waits_on(self) -> bool:
        """Whether a wait for the log goes on; asked in each wait of the task."""
        return is_active(self.identity.query_id)

    def add(self, rows: pa.RecordBatch) -> None:
        """In the columns of `encoding.COLUMNS`; their topics exist."""
        self.add_all([rows])

    def add_all(self, rows: Iterable[pa.RecordBatch]) -> None:
        if self._writer is None:
            writer = StagingWriter(self._area, f"{self.identity.batch_id}-{self._task}")
            self._writer = self._exits.enter_context(writer)
        from suiro.spark.encoding import encoded_rows  # a driver imports this module, and encodes nothing

        encoded = encoded_rows(
            rows, self._options, partition_count=self.partition_count, task_index=self._index, clock=self._clock
        )
        for batch in encoded:
            self._writer.add(*batch)

    def finish(self) -> CommitMessage | None:
        """None where nothing was added."""
        if self._writer is None:
            return None
        records = self._writer.finish()
        faults.reach("task_staged", self.identity.batch_id)
        return CommitMessage(records, self.identity, None if self._area is None else str(self._area.directory))


def stage(
    rows: Iterator[pa.RecordBatch],
    options: SinkOptions,
    identity: MicroBatchIdentity,
    properties: Mapping[str, str],
    *,
    waits: bool = True,
) -> CommitMessage:
    """In a task: encodes the rows and puts them where the driver finds them. `waits`: for a log that is away."""
    with StageOfTask(options, properties, identity=identity, waits=waits) as stage_:
        stage_.add_all(rows)
        message = stage_.finish()
    assert message is not None
    return message


def staging_area(
    options: SinkOptions, identity: MicroBatchIdentity, properties: Mapping[str, str]
) -> StagingArea | None:
    if options.staging_directory is not None:
        return StagingArea(Path(options.staging_directory) / identity.query_id)
    if properties.get("spark.master", "").startswith("local"):
        return StagingArea(staging.default_staging() / identity.query_id)
    return None


def task_properties() -> dict[str, str]:
    """Spark's properties of this task. There is no public way to all of them."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    properties: dict[str, str] = dict(context._localProperties or {})
    properties["task"] = str(context.taskAttemptId())
    properties["task index"] = str(context.partitionId())
    return properties
