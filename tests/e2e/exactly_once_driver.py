"""A Spark job as a user would write it, as a process of its own: copies a topic into two others, exactly once.

    python -m tests.e2e.exactly_once_driver BOOTSTRAP CHECKPOINT SOURCE EVEN ODD LIMIT [MASTER [APPLICATION]]

A query that fails (a Python worker was killed, the log was away) is started again, as a supervisor would. Ends when
everything that was there is copied.
"""

from __future__ import annotations

import sys

import suiro.spark
from suiro.clock import SystemClock

GIVE_UP_AFTER_MS = 3_000_000  # of a machine that has much else to do


def main(
    bootstrap: str,
    checkpoint: str,
    source: str,
    even: str,
    odd: str,
    limit: str,
    master: str = "local[2]",
    application: str = "copy",
) -> None:
    settings = {
        # A JVM that is killed soon is faster without its second compiler.
        "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
        # Executors are killed on purpose, and the checker asks what each micro-batch read.
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.executor.memory": "512m",
        "spark.sql.streaming.minBatchesToRetain": "1000",
    }
    spark = suiro.spark.spark_session("exactly once", master=master, settings=settings)
    clock = SystemClock()
    deadline = clock.monotonic_ms() + GIVE_UP_AFTER_MS
    while True:
        try:
            run(spark, bootstrap, checkpoint, source, even, odd, limit, application)
            return
        except Exception as error:
            print(f"restart: {str(error).splitlines()[0][:300]}", file=sys.stderr, flush=True)
            if clock.monotonic_ms() > deadline:
                raise


def run(spark, bootstrap: str, checkpoint: str, source: str, even: str, odd: str, limit: str, application: str) -> None:
    rows = (
        spark.readStream.format("suiro")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
        .load()
    )
    query = (
        rows.selectExpr("key", "value", f"if(offset % 2 = 0, '{even}', '{odd}') topic", "timestamp")
        .writeStream.format("suiro")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("application.id", application)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
