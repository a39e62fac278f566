"""PySpark reads and writes any Kafka through format "suiro", columns all the way, exactly once.

    import suiro.spark
    spark = suiro.spark.spark_session("flights")     # or your own session and suiro.spark.register(spark)
    spark.readStream.format("suiro").option("kafka.bootstrap.servers", ...).option("subscribe", ...).load()

- `session`, `java`: a tuned local session, and a Java for it. `class_archive`: Spark's classes, for quick starts;
  `python_server`, `python_stub`: its Python processes, likewise. `worker_daemon`: on clusters, which have none.
- `shared_jvm`, `shared_session`: several programs on one JVM.
- `options`: what may be said. `offsets`, `planning`: which records a micro-batch reads. `reading`: a task's work.
- `sink`: what Spark calls. `stage`, `encoding`, `staging`: a task's records on their way to the driver. `checkpoint`:
  Spark's own record of source offsets. `committer`, `decide`: one transaction per micro-batch, and whether to write it.
- `reports`: what tasks tell the driver, as bytes.
- `barrier`: the same transaction where the tasks send the records themselves. `barrier_stage`: that, in Spark.
- `connector`: what becomes of the options of Spark's own connector. `adoption`: takes over its checkpoint.
- `metrics`: what a query does, in numbers, for Prometheus too.
- `avro`: `from_avro` and `to_avro` for columns, by a schema registry.
- `foreach_batch`: the same for `foreachBatch`. `connections`: clients kept between tasks. `faults`: for tests.

Spark's workers import this at every start, so it imports nothing by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.extras import on_first_use

if TYPE_CHECKING:
    from suiro.spark.adoption import adopt
    from suiro.spark.avro import from_avro, to_avro
    from suiro.spark.checkpoint import PlannedOffsets, newest_in, query_id_of, read_planned
    from suiro.spark.class_archive import recorded
    from suiro.spark.committer import (
        MARKER_TOPIC,
        Destination,
        TrailingRecord,
        offsets_with_marker,
        read_marker,
        replaced,
    )
    from suiro.spark.connections import lease
    from suiro.spark.decide import Marker
    from suiro.spark.faults import reach
    from suiro.spark.foreach_batch import exactly_once
    from suiro.spark.java import find_java
    from suiro.spark.metrics import push_metrics, query_metrics, serve_metrics
    from suiro.spark.offsets import Positions, evenly_limited, least_of
    from suiro.spark.options import SinkOptions, SourceOptions
    from suiro.spark.planning import Allowance, OffsetRange, Pace
    from suiro.spark.python_server import can_share_jvm
    from suiro.spark.reading import ReadSettings, read_columns
    from suiro.spark.reports import CommitMessage, MicroBatchIdentity, PackedReport, commit_of, pack_commit
    from suiro.spark.session import java_started_early, register, require_classic, spark_session
    from suiro.spark.shared_session import is_jvm_gone, session_on_shared_jvm
    from suiro.spark.sink import TrailingRecordOf, commit_micro_batch, retries_of
    from suiro.spark.source import PlanningReader
    from suiro.spark.stage import StageOfTask
    from suiro.spark.staging import StagedRecords
    from suiro.spark.stopping import given_up_when_stopped
    from suiro.spark.waiting import Idling, RetryingClient, Waiting

__all__ = [
    "MARKER_TOPIC",
    "Allowance",
    "CommitMessage",
    "Destination",
    "Idling",
    "Marker",
    "MicroBatchIdentity",
    "OffsetRange",
    "Pace",
    "PackedReport",
    "PlannedOffsets",
    "PlanningReader",
    "Positions",
    "ReadSettings",
    "RetryingClient",
    "SinkOptions",
    "SourceOptions",
    "StageOfTask",
    "StagedRecords",
    "TrailingRecord",
    "TrailingRecordOf",
    "Waiting",
    "adopt",
    "can_share_jvm",
    "commit_micro_batch",
    "commit_of",
    "evenly_limited",
    "exactly_once",
    "find_java",
    "from_avro",
    "given_up_when_stopped",
    "is_jvm_gone",
    "java_started_early",
    "lease",
    "least_of",
    "newest_in",
    "offsets_with_marker",
    "pack_commit",
    "push_metrics",
    "query_id_of",
    "query_metrics",
    "reach",
    "read_columns",
    "read_marker",
    "read_planned",
    "recorded",
    "register",
    "replaced",
    "require_classic",
    "retries_of",
    "serve_metrics",
    "session_on_shared_jvm",
    "spark_session",
    "to_avro",
]

__getattr__ = on_first_use(
    __name__,
    {
        "adoption": "adopt",
        "avro": "from_avro to_avro",
        "checkpoint": "PlannedOffsets newest_in query_id_of read_planned",
        "class_archive": "recorded",
        "committer": "MARKER_TOPIC Destination TrailingRecord offsets_with_marker read_marker replaced",
        "connections": "lease",
        "decide": "Marker",
        "faults": "reach",
        "foreach_batch": "exactly_once",
        "java": "find_java",
        "metrics": "push_metrics query_metrics serve_metrics",
        "offsets": "Positions evenly_limited least_of",
        "options": "SinkOptions SourceOptions",
        "planning": "Allowance OffsetRange Pace",
        "python_server": "can_share_jvm",
        "reading": "ReadSettings read_columns",
        "reports": "CommitMessage MicroBatchIdentity PackedReport commit_of pack_commit",
        "session": "java_started_early register require_classic spark_session",
        "shared_session": "is_jvm_gone session_on_shared_jvm",
        "sink": "TrailingRecordOf commit_micro_batch retries_of",
        "source": "PlanningReader",
        "stage": "StageOfTask",
        "staging": "StagedRecords",
        "stopping": "given_up_when_stopped",
        "waiting": "Idling RetryingClient Waiting",
    },
    extras="spark",
)
