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

    from suiro.spark.reports import CommitMessage, MicroBatchIdentity

_INSTEAD = (
    'Rows that are only appended are written by writeStream.format("suiro"), exactly once too; a job that needs '
    "foreachBatch connects to a master of its own (SparkSession.builder.master(...))"
)


def exactly_once(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """`options` are those of the sink; `checkpointLocation` must be the query's own."""
    parsed = SinkOptions.parse(options).for_stream()
    require_classic("exactly_once(...)", instead=_INSTEAD)

    def write(rows: DataFrame, batch_id: int) -> None:
        from suiro.spark.reports import MicroBatchIdentity
        from suiro.spark.sink import check_schema, commit_micro_batch

        require_classic("exactly_once(...)", rows, instead=_INSTEAD)
        check_schema(rows.schema, parsed)
        identity = MicroBatchIdentity.of_rows(rows, batch_id)
        if not identity.query_id:
            raise UsageError("exactly_once(...) was called outside of foreachBatch: there is no query to be exact for")
        destination = parsed.bootstrap_servers, parsed.application_id, parsed.sink_name
        if _written.get(destination) == identity:
            # A second transaction of one micro-batch finds the marker of the first and is left out, its rows with it.
            raise UsageError(
                f"exactly_once(...) was called twice for micro-batch {batch_id}: the second call's rows would be taken "
                "for written already. Join what belongs together with unionByName and a topic column, and write it in "
                "one call"
            )
        if parsed.producer_tasks is not None:
            from suiro.spark.barrier_stage import send_from_tasks

            send_from_tasks(rows, parsed, identity)
        else:
            commit_micro_batch(_staged(rows, parsed, identity), batch_id, parsed)
        _written[destination] = identity

    return write


def _staged(rows: DataFrame, options: SinkOptions, identity: MicroBatchIdentity) -> list[CommitMessage]:
    """Has Spark's tasks encode and stage the rows."""
    from suiro.spark.reports import CommitMessage, pack_commit, unpack_commit
    from suiro.spark.staging import StagedRecords

    def stage_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        from suiro.spark.stage import stage, task_properties

        message = stage(batches, options, identity, task_properties())
        yield pyarrow.record_batch([pyarrow.array([pack_commit(message)])], names=["message"])

    collected = rows.mapInArrow(stage_task, "message binary").collect()
    messages = [unpack_commit(bytes(row.message)) for row in collected]
    return messages or [CommitMessage(StagedRecords(), identity, None)]


_written: dict[tuple[str, str | None, str], MicroBatchIdentity] = {}
"""The micro-batch that this process wrote last, by destination."""
