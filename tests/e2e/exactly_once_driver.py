"""A Spark job as a user would write it, as a process of its own: copies a topic into two others, exactly once.

    python -m tests.e2e.exactly_once_driver BOOTSTRAP CHECKPOINT SOURCE EVEN ODD LIMIT

A query that fails (a Python worker was killed, the log was away) is started again, as a supervisor would. Ends when
everything that was there is copied.
"""

from __future__ import annotations

import sys

import suiro.spark
from suiro.clock import SystemClock

GIVE_UP_AFTER_MS = 240_000


def main(bootstrap: str, checkpoint: str, source: str, even: str, odd: str, limit: str) -> None:
    # A JVM that is killed soon is faster without its second compiler.
    settings = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}
    spark = suiro.spark.spark_session("exactly once", master="local[2]", settings=settings)
    clock = SystemClock()
    deadline = clock.monotonic_ms() + GIVE_UP_AFTER_MS
    while True:
        try:
            run(spark, bootstrap, checkpoint, source, even, odd, limit)
            return
        except Exception as error:
            print(f"restart: {str(error).splitlines()[0][:300]}", file=sys.stderr, flush=True)
            if clock.monotonic_ms() > deadline:
                raise


def run(spark, bootstrap: str, checkpoint: str, source: str, even: str, odd: str, limit: str) -> None:
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
        .option("application.id", "copy")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
