"""A Spark job as a user would write it, as a process of its own: copies a topic into two others, exactly once.

    python -m tests.e2e.exactly_once_driver BOOTSTRAP CHECKPOINT SOURCE EVEN ODD LIMIT [MASTER [APPLICATION [KIND]]]

KIND: `format`, or `state` for a topology that counts the records of each partition, and so knows which are even.
A query that fails (a Python worker was killed, the log was away) is started again, as a supervisor would. Ends when
everything that was there is copied.
"""

from __future__ import annotations

import sys
from pathlib import Path

import suiro.spark
from suiro.clock import SystemClock
from suiro.streams import KafkaStreams, Processor, StreamsBuilder, Topology, serdes

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
    kind: str = "format",
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
            work = run if kind == "format" else run_with_state
            work(spark, bootstrap, checkpoint, source, even, odd, limit, application)
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


class Counting(Processor):
    """Without a record, or with one twice, all others would go where they do not belong."""

    def init(self, context) -> None:
        self.context = context
        self.counts = context.get_state_store("counts")

    def process(self, record) -> None:
        count = self.counts.get("records") or 0
        self.counts.put("records", count + 1)
        self.context.forward(record.with_value(f"{count % 2}:{record.value}"))


def topology(source: str, even: str, odd: str) -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store("counts", key=serdes.string, value=serdes.long)
    records = builder.stream(source, key=serdes.string, value=serdes.string)
    counted = records.process_values(Counting, "counts", value=serdes.string)
    for start, topic in (("0:", even), ("1:", odd)):
        chosen = counted.filter(lambda _, value, start=start: value.startswith(start))
        chosen.map_values(lambda value: value[2:], value=serdes.string).to(topic)
    return builder.build()


def run_with_state(
    spark, bootstrap: str, checkpoint: str, source: str, even: str, odd: str, limit: str, application: str
) -> None:
    """`checkpoint`: named as the application."""
    streams = KafkaStreams(
        topology(source, even, odd),
        application_id=application,
        bootstrap_servers=bootstrap,
        spark=spark,
        state_dir=Path(checkpoint).parent,
        max_offsets_per_trigger=int(limit),
        trigger={"availableNow": True},
    )
    with streams:
        streams.await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
