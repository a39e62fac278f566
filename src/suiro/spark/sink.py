"""Spark's sink: tasks encode and stage records (`stage`), and the driver commits one Kafka transaction per micro-batch.

`write` runs in tasks, any number of times; nothing of it reaches Kafka. `commit` runs once per micro-batch and attempt
in a worker process of the driver, which Spark usually keeps: what `_sinks` remembers is a short cut only, since
the committer asks Kafka when it knows nothing. `abort` is also called after `commit` itself failed, perhaps after the
decision: it touches staged files only.
"""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from suiro.clock import SystemClock
from suiro.errors import FatalError
from suiro.foundation.types import TopicPartition
from suiro.spark import faults, staging
from suiro.spark.barrier import BarrierCommitter, Report
from suiro.spark.checkpoint import PlannedOffsets, newest_in, read_planned, same_cluster_offsets
from suiro.spark.committer import MARKER_TOPIC, Committer, Destination, MicroBatch, Outcome, TrailingRecord
from suiro.spark.decide import Plan
from suiro.spark.metrics import SinkCounts
from suiro.spark.options import SinkOptions
from suiro.spark.reports import CommitMessage, MicroBatchIdentity
from suiro.spark.stage import stage, task_properties
from suiro.spark.staging import StagedWrites, StagingArea
from suiro.spark.stopping import given_up_when_stopped
from suiro.spark.waiting import Waiting

if TYPE_CHECKING:
    import pyarrow as pa


Settle = Callable[[PlannedOffsets, Mapping[TopicPartition, int]], Mapping[TopicPartition, tuple[int, str]]]
"""Takes the plan and its source offsets, and returns the (offset, metadata) to commit instead."""
TrailingRecordOf = Callable[[PlannedOffsets], TrailingRecord | None]
"""Takes the plan, and returns the last record of its transaction."""


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        _spare_garbage_collection()
        check_schema(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        properties = task_properties()
        return stage(iterator, self._options, MicroBatchIdentity.of_task(properties), properties)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _spare_garbage_collection()
        commit_micro_batch([_message(item) for item in messages], batchId, self._options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _drop(messages)


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("suiro")`: all of it in one transaction, so readers see all or nothing.

    Running it twice writes twice: there is no checkpoint to tell that it is the same.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        identity = MicroBatchIdentity(query_id=f"batch-{self._job}", run_id=self._job, batch_id=0)
        return stage(iterator, self._options, identity, task_properties(), waits=False)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from suiro.client import Client

        found = [_message(item) for item in messages]
        writes = StagedWrites([item.records for item in found])
        writes.check_inline_size()
        options = self._options
        if writes.record_count:
            name = f"{options.application_id or 'suiro'}/batch/{self._job}"
            with Client(options.bootstrap_servers, settings=options.client_settings) as client:
                transactions = client.transaction(name, timeout_ms=options.transaction_timeout_ms)
                transactions.init()
                try:
                    transactions.add_partitions(writes.partitions)
                    transactions.produce(writes.batches())
                except BaseException:
                    transactions.init()  # aborts by fencing
                    raise
                transactions.end(commit=True)
        _sweep(found, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _drop(messages)


def commit_micro_batch(
    messages: Sequence[CommitMessage],
    batch_id: int,
    options: SinkOptions,
    *,
    settle: Settle | None = None,
    trailing_record: TrailingRecordOf | None = None,
) -> Outcome:
    """On the driver: one transaction with the records, the marker and the source offsets."""
    identity = next((item.identity for item in messages), None)
    if identity is None or identity.batch_id != batch_id:
        raise FatalError(f"tasks wrote micro-batch {identity}, Spark commits {batch_id}")
    planned, plan = _planned(options, identity)
    writes = StagedWrites([item.records for item in messages])
    writes.check_inline_size()
    areas = _staging_areas(messages)
    with staging.keeper.during(areas), _in_use(options, identity, areas) as sink:
        outcome = sink.process(plan, writes, planned, settle=settle, trailing_record=trailing_record)
    _sweep(messages, batch_id)
    faults.reach("before_return", batch_id)
    return outcome


def retries_of(options: SinkOptions, identity: MicroBatchIdentity) -> int:
    """How often micro-batches of this query were tried again, in the run under way."""
    sink = _sinks.get((*_key(options), identity.query_id))
    return 0 if sink is None else sink.retries


def commit_sent(
    options: SinkOptions,
    identity: MicroBatchIdentity,
    stage_of: Callable[[Plan, Destination], Callable[[], Sequence[Report]]],
) -> Outcome:
    """On the driver, where tasks send the records: also one transaction. `stage_of` returns the function that runs
    these tasks; it may run several times."""
    planned, plan = _planned(options, identity)
    with _in_use(options, identity) as sink:
        outcome = sink.process_sent(plan, planned, stage_of(plan, sink.destination))
    faults.reach("before_return", identity.batch_id)
    return outcome


@contextmanager
def _in_use(options: SinkOptions, identity: MicroBatchIdentity, areas: Iterable[StagingArea] = ()) -> Iterator[_Sink]:
    """The sink of a query. Gives up its waits if the query is stopped; the next one then gets a new sink.

    A driver may run several queries at once. Two with one application id must fence each other as two drivers do: with
    one identity, what one of them aborts would be committed by the other.
    """
    name, key = _key(options), (*_key(options), identity.query_id)
    with _lock:
        sink = _sinks.get(key)
        is_new = sink is None or sink.is_in_use
        if sink is None or sink.is_in_use:
            for other in [one for one in _sinks if one[:-1] == name and not _sinks[one].is_in_use]:
                _sinks.pop(other).close()
            sink = _sinks[key] = _Sink(options)
        sink.is_in_use = True
    try:
        if is_new:
            for area in areas:
                area.remove_abandoned(SystemClock().wall_ms())
        with given_up_when_stopped(identity.query_id, sink.give_up):
            yield sink
    finally:
        with _lock:
            sink.is_in_use = False
            if sink.is_given_up and _sinks.get(key) is sink:
                del _sinks[key]


def _planned(options: SinkOptions, identity: MicroBatchIdentity) -> tuple[PlannedOffsets, Plan]:
    """The offsets that Spark wrote down before the micro-batch ran, and the plan made of them."""
    number = identity.batch_id
    assert options.checkpoint_location is not None
    planned = read_planned(options.checkpoint_location, number)
    if planned is None:
        raise FatalError(_without_plan(options.checkpoint_location, number))
    before = read_planned(options.checkpoint_location, number - 1) if number else None
    return planned, Plan(
        batch_id=number,
        lineage=identity.query_id,
        run_id=identity.run_id,
        start_digest="" if before is None else before.digest,
        end_digest=planned.digest,
    )


def _without_plan(checkpoint_location: str, batch_id: int) -> str:
    newest = newest_in(checkpoint_location, "offsets")
    if newest > batch_id:  # this driver slept for so long that Spark no longer keeps its micro-batch
        return (
            f"another driver took over {checkpoint_location}: it is at micro-batch {newest}, and the plan of "
            f"micro-batch {batch_id}, which this one was about to commit, is removed. This one writes nothing and stops"
        )
    return (
        f"{checkpoint_location.rstrip('/')}/offsets/{batch_id} is not there: is this query's checkpointLocation "
        "visible to the driver's Python?"
    )


class _Sink:
    """A committer with its connection, kept for the next micro-batch of this process."""

    def __init__(self, options: SinkOptions) -> None:
        from suiro.client import Client

        self.destination = Destination.of(options)
        self.is_in_use = self.is_given_up = False
        self._clock = SystemClock()
        self._client = Client(options.bootstrap_servers, settings=options.client_settings)
        self._waiting = Waiting(
            clock=self._clock,
            limit_ms=options.waiting_limit_ms,
            is_wanted=lambda: not self.is_given_up,
            note=self._note_waiting,
        )
        self._committer = Committer(
            self._client, self.destination, reach=faults.reach, clock=self._clock, waiting=self._waiting
        )
        self._of_tasks = BarrierCommitter(
            self._client,
            self.destination,
            tasks=options.producer_tasks or 0,
            counts=self._committer.counts,
            reach=faults.reach,
            waiting=self._waiting,
            clock=self._clock,
        )
        self._has_marker_topic = False
        self._counts: SinkCounts | None = None
        self._topic_ids: dict[str, str] = {}
        self._asked: set[tuple[str, str]] = set()

    def give_up(self) -> None:
        """Makes its waits fail now; called from another thread. The sink cannot be used afterwards."""
        self.is_given_up = True
        self._client.abandon()

    def close(self) -> None:
        self._client.close()

    def process(
        self,
        plan: Plan,
        writes: StagedWrites,
        planned: PlannedOffsets,
        *,
        settle: Settle | None,
        trailing_record: TrailingRecordOf | None,
    ) -> Outcome:
        with self._counted(plan) as counts:
            offsets = self._source_offsets(planned)
            settled = {} if settle is None else settle(planned, offsets)
            outcome = self._committer.process(
                MicroBatch(
                    plan=plan,
                    writes=writes,
                    source_offsets=offsets | {place: offset for place, (offset, _) in settled.items()},
                    source_notes={place: note for place, (_, note) in settled.items()},
                    trailing_record=None if trailing_record is None else trailing_record(planned),
                )
            )
            counts.add(outcome, writes.record_count, writes.size_bytes)
        return outcome

    def process_sent(self, plan: Plan, planned: PlannedOffsets, run_stage: Callable[[], Sequence[Report]]) -> Outcome:
        with self._counted(plan) as counts:
            outcome, reports = self._of_tasks.process(plan, self._source_offsets(planned), run_stage)
            records = sum(report.record_count for report in reports)
            counts.add(outcome, records, sum(report.size_bytes for report in reports))
        return outcome

    @contextmanager
    def _counted(self, plan: Plan) -> Iterator[SinkCounts]:
        """Around one transaction, which is counted whatever its outcome."""
        counts, committer = self._counts, self._committer
        if counts is None or (counts.query_id, counts.run_id) != (plan.lineage, plan.run_id):
            counts = self._counts = SinkCounts.open(plan.lineage, plan.run_id, self.destination.transactional_id)
            counts.remove_abandoned(self._clock.wall_ms() / 1000)
            self._forget_topics()
        before = replace(committer.counts)
        began = self._clock.monotonic_ms()
        try:
            self._require_marker_topic()
            yield counts
            counts.last_commit_timestamp = self._clock.wall_ms() / 1000
        finally:
            counts.last_commit_seconds = (self._clock.monotonic_ms() - began) / 1000
            counts.commit_seconds += counts.last_commit_seconds
            counts.aborts += committer.counts.aborts - before.aborts
            counts.fences += committer.counts.fences - before.fences
            counts.retries += committer.counts.retries - before.retries
            counts.save()

    @property
    def retries(self) -> int:
        return 0 if self._counts is None else self._counts.retries

    def _forget_topics(self) -> None:
        """For a new run: between two of them topics may have been deleted, or made again."""
        self._has_marker_topic = False
        self._asked.clear()
        self._topic_ids.clear()

    def _require_marker_topic(self) -> None:
        from suiro.client import NewTopic

        client = self._client
        if self._has_marker_topic:
            return
        known = self._waiting.run("look for the topic of markers", lambda: client.metadata([MARKER_TOPIC]))
        if MARKER_TOPIC not in known:
            self._waiting.run(
                "make the topic of markers",
                lambda: client.create_topics([NewTopic(MARKER_TOPIC, 1)], exist_ok=True),
            )
        self._has_marker_topic = True

    def _source_offsets(self, planned: PlannedOffsets) -> dict[TopicPartition, int]:
        """The offsets of sources on this cluster. It asks once for each topic that is planned; one that was made again
        has another id."""
        new = {item for positions in planned.positions for item in positions.topic_ids.items()} - self._asked
        if new:
            names = sorted({name for name, _ in new})
            known = self._waiting.run("look source topics up", lambda: self._client.metadata(names))
            self._asked |= new
            for name, info in known.items():
                if info.topic_id is not None:
                    self._topic_ids[name] = info.topic_id.hex
        return same_cluster_offsets(planned, self._topic_ids)

    def _note_waiting(self, since_ms: int | None) -> None:
        counts = self._counts
        if counts is not None:
            counts.waiting_since = 0.0 if since_ms is None else since_ms / 1000
            counts.save()


_sinks: dict[tuple[Any, ...], _Sink] = {}
_lock = Lock()
"""For `_sinks`: queries of one driver run in threads."""


def _key(options: SinkOptions) -> tuple[Any, ...]:
    return (
        os.getpid(),
        options.bootstrap_servers,
        tuple(sorted(options.client_settings.items())),
        options.application_id,
        options.sink_name,
        options.missing_marker,
        options.missing_checkpoint,
        options.begins_after,
        options.transaction_timeout_ms,
        options.producer_tasks,
    )


@cache
def _spare_garbage_collection() -> None:
    """Spark's workers collect garbage after every call. Once per process, this leaves the imported modules out of
    it."""
    import suiro.client  # noqa: F401

    gc.freeze()


def check_schema(schema: StructType, options: SinkOptions) -> None:
    from suiro.spark.encoding import check_columns

    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    check_columns(types, has_topic=options.topic is not None)


def _message(item: WriterCommitMessage | None) -> CommitMessage:
    if not isinstance(item, CommitMessage):
        raise FatalError(f"a task that Spark counts as done left no commit message: {item!r}")
    return item


def _drop(messages: Sequence[WriterCommitMessage | None]) -> None:
    staging.remove([item.records for item in messages if isinstance(item, CommitMessage)])


def _sweep(messages: Sequence[CommitMessage], batch_id: int) -> None:
    for area in _staging_areas(messages):
        area.remove_until(batch_id)


def _staging_areas(messages: Sequence[CommitMessage]) -> set[StagingArea]:
    return {StagingArea(Path(item.staging_directory)) for item in messages if item.staging_directory is not None}
