"""The exactly-once sink for `foreachBatch`: the same transaction, for code that produces the rows itself.

    write = suiro.spark.exactly_once({"kafka.bootstrap.servers": b, "application.id": "app",
                                      "checkpointLocation": d})
    def each(rows, batch_id):
        write(validated(rows).unionByName(rejected(rows)), batch_id)      # a topic column says which goes where
    rows.writeStream.foreachBatch(each).option("checkpointLocation", d).start()

Call it exactly once per micro-batch, with everything that the micro-batch writes, also if that is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from suiro.errors import UsageError
from suiro.spark.options import SinkOptions
from suiro.spark.session import require_classic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_INSTEAD = (
    'Rows that are only appended are written by writeStream.format("suiro"), exactly once too; a job that needs '
    "foreachBatch connects to a master of its own (SparkSession.builder.master(...))"
)


def exactly_once(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """`options` are those of the sink; `checkpointLocation` must be the query's own."""
    parsed = SinkOptions.parse(options).for_stream()
    require_classic("exactly_once(...)", instead=_INSTEAD)

    def write(rows: DataFrame, batch_id: int) -> None:
        from suiro.spark.reports import unpack_commit
        from suiro.spark.sink import CommitMessage, MicroBatchIdentity, commit_micro_batch
        from suiro.spark.sink import _check_schema as check_schema

        require_classic("exactly_once(...)", rows, instead=_INSTEAD)
        check_schema(rows.schema, parsed)
        query_id, run_id = _query(rows)
        _require_first_call(parsed, (query_id, run_id, batch_id))
        identity = MicroBatchIdentity(query_id=query_id, run_id=run_id, batch_id=batch_id)
        if parsed.producer_tasks is not None:
            from suiro.spark.barrier_stage import send_from_tasks

            send_from_tasks(rows, parsed, identity)
            _written[_destination(parsed)] = (query_id, run_id, batch_id)
            return

        def stage_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow

            from suiro.spark.reports import pack_commit
            from suiro.spark.sink import stage, task_properties

            message = stage(batches, parsed, identity, task_properties())
            yield pyarrow.record_batch([pyarrow.array([pack_commit(message)])], names=["message"])

        collected = rows.mapInArrow(stage_task, "message binary").collect()
        messages = [unpack_commit(bytes(row.message)) for row in collected]
        if not messages:
            from suiro.spark.staging import StagedRecords

            messages = [CommitMessage(StagedRecords(), identity, None)]
        commit_micro_batch(messages, batch_id, parsed)
        _written[_destination(parsed)] = (query_id, run_id, batch_id)

    return write


_written: dict[tuple[str, str | None, str], tuple[str, str, int]] = {}
"""What this process wrote last: destination -> (query, run, micro-batch)."""


def _require_first_call(options: SinkOptions, micro_batch: tuple[str, str, int]) -> None:
    """A second transaction of one micro-batch finds the marker of the first and is left out, its rows with it."""
    if _written.get(_destination(options)) == micro_batch:
        raise UsageError(
            f"exactly_once(...) was called twice for micro-batch {micro_batch[2]}: the second call's rows would be "
            "taken for written already. Join what belongs together with unionByName and a topic column, and write it "
            "in one call"
        )


def _destination(options: SinkOptions) -> tuple[str, str | None, str]:
    return options.bootstrap_servers, options.application_id, options.sink_name


def _query(rows: DataFrame) -> tuple[str, str]:
    context = rows.sparkSession.sparkContext
    query_id = context.getLocalProperty("sql.streaming.queryId")
    run_id = context.getLocalProperty("spark.jobGroup.id")
    if not query_id:
        raise UsageError(
            "exactly_once(...) was called outside of foreachBatch: there is no query to be exact for"
        )
    return query_id, run_id or ""
