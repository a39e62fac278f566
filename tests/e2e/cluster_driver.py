"""A Spark job on a cluster, as a process of its own: what a user runs with `spark-submit` in client mode.

    python -m tests.e2e.cluster_driver copy|count|elastic MASTER BOOTSTRAP DIRECTORY [staging directory]

`copy`: format suiro from topic in to topic out. `count`: a topology that counts the values of in by key. Both end when
everything is processed. The first attempt of one task waits for a speculative copy of itself (if the workers' hosts
differ, else there is none), another one fails.

`elastic`: as `copy`, on as many executors as there is work for, until there is a file `done`. Spark's event log is in
`events`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import suiro.spark
from suiro.streams import KafkaStreams, Materialized, StreamsBuilder, serdes

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.memory": "512m",
    "spark.python.daemon.module": "suiro.spark.worker_daemon",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.task.duration.threshold": "2s",  # of a stage with one task
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "8",
}
ELASTIC = {
    "spark.speculation": "false",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.executor.cores": "1",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}
MAX_OFFSETS = "60"
SPECULATED, FAILED = 1, 2  # micro-batches
LONGEST_WAIT_S = 120


def main(kind: str, master: str, bootstrap: str, directory: str, staging: str | None = None) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("on a cluster").master(master)
    settings = dict(SETTINGS)
    if kind == "elastic":
        events = Path(directory) / "events"
        events.mkdir()
        settings |= ELASTIC | {"spark.eventLog.dir": events.as_uri()}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if master.startswith("local"):
        (Path(directory) / "one-host").touch()
    suiro.spark.register(spark)
    {"copy": copy, "count": count, "elastic": elastic}[kind](spark, bootstrap, Path(directory), staging)
    spark.stop()


def copy(spark: SparkSession, bootstrap: str, directory: Path, staging: str | None) -> None:
    rows = spark.readStream.format("suiro").options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": "in",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": MAX_OFFSETS,
        }
    )
    marks = str(directory)

    def hindered(batches: Iterator[Any]) -> Iterator[Any]:
        hinder(Path(marks))
        yield from batches

    frame = rows.load().select("key", "value").mapInArrow(hindered, "key binary, value binary")
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "application.id": "copy",
        "topic": "out",
        "checkpointLocation": str(directory / "state" / "copy"),
    }
    if staging is not None:
        options["staging.dir"] = staging
    query = frame.writeStream.format("suiro").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()


def elastic(spark: SparkSession, bootstrap: str, directory: Path, staging: str | None) -> None:
    source = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": "in",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": MAX_OFFSETS,
    }
    sink = {
        "kafka.bootstrap.servers": bootstrap,
        "application.id": "elastic",
        "topic": "out",
        "checkpointLocation": str(directory / "state" / "elastic"),
    }
    frame = spark.readStream.format("suiro").options(**source).load().select("key", "value")
    query = frame.writeStream.format("suiro").options(**sink).start()
    while not (directory / "done").exists() and not query.awaitTermination(1):
        continue
    query.stop()


def count(spark: SparkSession, bootstrap: str, directory: Path, staging: str | None) -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", key=serdes.string, value=serdes.string)
    marks = str(directory)

    def hindered(key: str, value: str) -> str:
        hinder(Path(marks))
        return value

    by_word = words.group_by(hindered, name="words")
    by_word.count(materialized=Materialized.as_("counts")).to_stream().to("out")
    streams = KafkaStreams(
        builder.build(),
        application_id="count",
        bootstrap_servers=bootstrap,
        spark=spark,
        state_dir=directory / "state",
        emit="every",
        max_offsets_per_trigger=int(MAX_OFFSETS),
        settings={} if staging is None else {"staging.dir": staging},
    )
    with streams:
        streams.process_all_available()


def hinder(marks: Path) -> None:
    """In a task. Nothing but the first attempt of a task in two micro-batches is touched."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    batch = int((context._localProperties or {})["streaming.sql.batchId"])
    if context.partitionId() != 0:
        return
    if batch == SPECULATED and not (marks / "one-host").exists():
        if context.attemptNumber() > 0:
            (marks / "speculated").touch()
        elif not (marks / "waited").exists():
            (marks / "waited").touch()
            ends = time.monotonic() + LONGEST_WAIT_S
            while not (marks / "speculated").exists() and time.monotonic() < ends:
                time.sleep(0.05)
    if batch == FAILED and not (marks / "failed").exists():
        (marks / "failed").touch()
        raise RuntimeError("a task's first attempt fails")


if __name__ == "__main__":
    main(*sys.argv[1:])
