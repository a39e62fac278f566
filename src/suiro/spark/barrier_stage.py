"""The stage of `barrier`, in Spark: tasks encode, a shuffle brings each partition to its owner, the owners send.

    rows -> encode (ordinary tasks) -> repartitionById(owner) -> sort -> send (a barrier stage: all tasks at once)

Encoding is done when the barrier stage begins, so Spark may repeat and double those tasks as it likes. The order of a
key is that of the driver's own path: encoding task by encoding task, and within one as its rows came.
"""

from __future__ import annotations

import base64
import pickle  # tickets and reports carry errors as objects, between tasks of one job and its driver; never kept
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suiro.clock import SystemClock
from suiro.errors import TransientError, UsageError
from suiro.spark import faults
from suiro.spark.barrier import Report, Ticket, open_transaction, owner_of, send
from suiro.spark.committer import Destination
from suiro.spark.connections import lease, partition_counter
from suiro.spark.decide import Plan
from suiro.spark.encoding import encoded_rows
from suiro.spark.options import SinkOptions
from suiro.spark.reports import MicroBatchIdentity
from suiro.spark.sink import commit_sent
from suiro.spark.stage import task_properties
from suiro.spark.waiting import Waiting

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_ENCODED = "owner int, topic string, partition int, task int, place long, records int, batch binary"
_IN_ORDER = ("topic", "partition", "task", "place")
_CAME_TO_NOTHING = "barrier ResultStage"
"""In what Spark says when a task of the stage died, or its executor. It gives the job up then; we run it again."""


def send_from_tasks(rows: DataFrame, options: SinkOptions, identity: MicroBatchIdentity) -> None:
    """In `foreachBatch`. Returns when the micro-batch is in Kafka."""
    tasks = options.producer_tasks
    assert tasks is not None
    _require_fixed_executors(rows)

    def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _encode(batches, options, identity.batch_id, tasks)

    shuffled = rows.mapInArrow(encode, _ENCODED).repartitionById(tasks, "owner")
    in_order = shuffled.sortWithinPartitions(*_IN_ORDER)

    def stage_of(plan: Plan, destination: Destination) -> Callable[[], Sequence[Report]]:
        task = _sender(options, plan, destination)
        sending = in_order.mapInArrow(task, "report binary", barrier=True)

        def run() -> Sequence[Report]:
            # Of one DataFrame: a second run takes the shuffle that the first one made.
            try:
                found = sending.collect()
            except Exception as error:
                if _CAME_TO_NOTHING not in str(error):
                    raise
                raise TransientError(f"the tasks that send micro-batch {plan.batch_id} died: {error}") from error
            return [pickle.loads(row.report) for row in found]

        return run

    commit_sent(options, identity, stage_of)


def _encode(
    rows: Iterator[pa.RecordBatch], options: SinkOptions, batch_id: int, tasks: int
) -> Iterator[pa.RecordBatch]:
    """A row for each record batch."""
    import pyarrow

    kinds = {"int": pyarrow.int32(), "long": pyarrow.int64(), "string": pyarrow.string(), "binary": pyarrow.binary()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in map(str.split, _ENCODED.split(", "))])
    clock = SystemClock()
    waiting = Waiting(clock=clock, limit_ms=options.waiting_limit_ms)
    index = int(task_properties()["task index"])
    faults.reach("task_start", batch_id)
    encoded = encoded_rows(
        rows,
        options,
        partition_count=partition_counter(options, waiting=waiting, clock=clock),
        task_index=index,
        clock=clock,
    )
    for place, (topic, partition, data, count) in enumerate(encoded):
        row = (owner_of(topic, partition, tasks), topic, partition, index, place, count, data)
        yield pyarrow.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True))], schema)
    faults.reach("task_staged", batch_id)


def _sender(
    options: SinkOptions, plan: Plan, destination: Destination
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        index = context.partitionId()
        with lease(options.bootstrap_servers, options.client_settings) as client:
            ticket = open_transaction(client, destination, plan, reach=faults.reach) if index == 0 else None
            told = [_read(text) for text in context.allGather(_written(ticket))]
            ticket = next((one for one in told if one is not None), None)
            faults.reach("after_gather", plan.batch_id)
            if ticket is not None and ticket.says_send:
                report = send(
                    client,
                    destination,
                    ticket,
                    _batches(rows),
                    task=index,
                    batch_id=plan.batch_id,
                    reach=faults.reach,
                )
            else:
                report = Report(task=index, ticket=ticket)
        for _ in rows:
            pass  # Spark keeps a worker that has read all it was given
        yield pyarrow.record_batch([pyarrow.array([pickle.dumps(report)])], names=["report"])

    return task


def _batches(rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, Any, int]]:
    for some in rows:
        columns = [some.column(name) for name in ("topic", "partition", "batch", "records")]
        for topic, partition, data, count in zip(*columns, strict=True):
            yield topic.as_py(), partition.as_py(), data.as_py(), count.as_py()


def _written(ticket: Ticket | None) -> str:
    return "" if ticket is None else base64.b64encode(pickle.dumps(ticket)).decode()


def _read(text: str) -> Ticket | None:
    found: Ticket | None = pickle.loads(base64.b64decode(text)) if text else None
    return found


def _require_fixed_executors(rows: DataFrame) -> None:
    settings = rows.sparkSession.sparkContext.getConf()
    if (settings.get("spark.dynamicAllocation.enabled") or "false").lower() == "true":
        raise UsageError(
            "option producer.tasks: its tasks run all at once, and Spark has no such stage with dynamic allocation. "
            "Set spark.dynamicAllocation.enabled to false, or leave producer.tasks out and set staging.dir"
        )
