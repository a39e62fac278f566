"""Starts a topology's query: source, one stateful operator for each level, and a transaction for each micro-batch.

Finds the error that ended a query in Spark's report of it.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suiro.clock import SystemClock
from suiro.errors import SuiroError
from suiro.spark import (
    CommitMessage,
    MicroBatchIdentity,
    StagedRecords,
    TrailingRecordOf,
    commit_micro_batch,
    retries_of,
)
from suiro.streams_spark.driver_task import DriverTask
from suiro.streams_spark.processor import TaskProcessor
from suiro.streams_spark.program import Program, packed
from suiro.streams_spark.rebuild import BufferedFrom, settled
from suiro.streams_spark.reports import RunCounts, unpack_reports
from suiro.streams_spark.shuffle_message import SPARK_SCHEMA, STAGED
from suiro.streams_spark.source import FORMAT, WAITS, TopologySource
from suiro.streams_spark.spread import salts_expression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from suiro.telemetry import Traces

_log = logging.getLogger(__name__)
_STATE = "spark.sql.streaming.stateStore"

STATE_SETTINGS: Mapping[str, str] = {
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # A commit writes what changed, not the database's files.
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
    # Segments are large and are read once; bloom filters and statistics would only cost.
    f"{_STATE}.rocksdb.resetStatsOnLoad": "false",
    # Each version of the state has an id of its own, which the commit log names. Without, Spark keeps the file that a
    # killed attempt left and takes it for what the repetition wrote.
    f"{_STATE}.checkpointFormatVersion": "2",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Nothing is done in a micro-batch without data; closing times come with the data.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # How long after a look that found nothing the next one follows. A look itself waits for records (`idling`); this is
    # for those that may not: a pace holds records back, or a trigger was given.
    "spark.sql.streaming.pollingDelay": "25ms",
}


def start_query(
    spark: SparkSession,
    program: Program,
    *,
    checkpoint: Path,
    counts: RunCounts,
    trigger: Mapping[str, Any] | None = None,
    trailing_record: TrailingRecordOf | None = None,
    traces: Traces | None = None,
) -> StreamingQuery:
    """`counts` gets the reports of committed micro-batches. `trigger`: as `DataStreamWriter.trigger` takes it.
    `trailing_record`: makes the last record of each transaction. `traces` gets the spans of records. The session stays
    as it was.
    """
    session = spark.newSession()
    for name, value in STATE_SETTINGS.items():
        session.conf.set(name, value)
    widest = max((sub.tasks for sub in program.plan.subs if sub.level), default=1)
    # Kept in the checkpoint from the first start on: each costs a state store's commit in every micro-batch.
    session.conf.set("spark.sql.shuffle.partitions", str(max(1, min(widest, program.parallelism))))
    session.dataSource.register(TopologySource)
    text = packed(program)
    salts = salts_expression([sub.tasks for sub in program.plan.subs])
    reader = session.readStream.format(FORMAT).option("program", text)
    rows = reader.option(WAITS, str(not trigger).lower()).load()
    for level in range(1, program.plan.levels + 1):
        rows = rows.selectExpr("sub", "bucket", f"{salts} salt", "message")
        with _without_pandas():
            rows = rows.groupBy("sub", "bucket", "salt").transformWithStateInPandas(
                statefulProcessor=TaskProcessor(text, level),
                outputStructType=SPARK_SCHEMA,
                outputMode="Append",
                timeMode="None",
            )
    small = DriverTask.where_it_serves(program, text, master=spark.sparkContext.master or "")
    writer = rows.writeStream.foreachBatch(_commits(program, counts, trailing_record, small, traces)).outputMode(
        "append"
    )
    writer = writer.queryName(program.plan.application_id).option("checkpointLocation", str(checkpoint))
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start()


_replacing = threading.Lock()


@contextmanager
def _without_pandas() -> Iterator[None]:
    """PySpark imports pandas to look at its version, which suiro's requirements settle: 0.3 s of a start and 44 MiB of
    a driver that has no other use for it."""
    functions: Any = import_module("pyspark.sql.pandas.functions")
    with _replacing:
        look = functions.require_minimum_pandas_version
        functions.require_minimum_pandas_version = lambda: None
        try:
            yield
        finally:
            functions.require_minimum_pandas_version = look


def _commits(
    program: Program,
    counts: RunCounts,
    trailing_record: TrailingRecordOf | None,
    small: DriverTask | None,
    traces: Traces | None,
) -> Callable[[DataFrame, int], None]:
    """One Kafka transaction: outputs, changelogs, the trailing record, source offsets."""
    sink = program.sink

    def commit(rows: DataFrame, batch_id: int) -> None:
        _log.debug("micro-batch %d is planned", batch_id)
        identity = MicroBatchIdentity.of_rows(rows, batch_id)
        told = None if small is None else small.reports(identity)
        if told is None:
            told = [row.message for row in rows.collect() if row.sub == STAGED]
        _log.debug("micro-batch %d is worked on", batch_id)
        reports = unpack_reports(told)
        messages = [item for item in reports if isinstance(item, CommitMessage)]
        buffered = [item for item in reports if isinstance(item, BufferedFrom)]
        if program.follows:
            counts.add(batch_id, reports)
            return  # whom it follows writes the results; nothing is staged
        before = retries_of(sink, identity)
        commit_micro_batch(
            messages or [CommitMessage(StagedRecords(), identity, None)],
            batch_id,
            sink,
            settle=lambda planned, offsets: settled(planned.positions, offsets, buffered, program.boundary),
            trailing_record=trailing_record,
        )
        _log.debug("micro-batch %d is committed", batch_id)
        counts.add(batch_id, reports, retries=max(retries_of(sink, identity) - before, 0))
        if traces is not None:
            from suiro.streams_spark.record_spans import NS_PER_MS, spans_of  # other drivers need none of it

            written_ns = SystemClock().wall_ms() * NS_PER_MS
            traces.export(spans_of(reports, program.plan.application_id, written_ns))

    return commit


_MODULES = ("suiro.streams.errors", "suiro.streams.serdes", "suiro.errors")
_LINE = re.compile(r"^\s*(?:Caused by: |[\w.]+: )*suiro\.[\w.]+\.(?P<name>[A-Z]\w+): (?P<message>.*)$", re.MULTILINE)


def cause_of(failure: BaseException) -> BaseException:
    """The error of ours that a worker raised, made again from its text; the failure itself where there is none.

    A Python traceback tells causes first, so the last error in it is the one that was raised.
    """
    for match in reversed(list(_LINE.finditer(str(failure)))):
        for module in _MODULES:
            kind = getattr(import_module(module), match["name"], None)
            if isinstance(kind, type) and issubclass(kind, SuiroError):
                return _told(kind, match["message"], failure)
    return failure


def _told(kind: type[SuiroError], message: str, failure: BaseException) -> BaseException:
    """Of this kind, saying this: its own `__str__` may need what did not come through."""
    members: dict[str, Any] = {"__str__": lambda self: str(self.args[0]), "__module__": kind.__module__}
    told: Any = type(kind.__name__, (kind,), members)
    made = told.__new__(told)
    made.args = (message,)
    made.__cause__ = failure
    assert isinstance(made, BaseException)
    return made
