"""What suiro's own Spark source and sink do, without a peer: rows a second, and what a small micro-batch costs.

    python benchmarks/spark_rows.py [--records 2000000] [--value-bytes 100] [--log node|kafka] [--small 40]

`benchmarks/spark.py` compares with Spark's own connector; this one is quick enough to run after each change. Every
work runs once to warm up and once measured, in micro-batches of a fourth of the records.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import load

import suiro.spark
from suiro.client import Client, NewTopic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--log", choices=("node", "kafka"), default="node")
    parser.add_argument("--small", type=int, default=40, help="how many small micro-batches to time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="suiro-bench-") as directory:
        log = start(arguments.log, Path(directory))
        try:
            Bench(log.bootstrap_servers, arguments.records, arguments.value_bytes).run(arguments.small)
        finally:
            log.stop()


def start(kind: str, directory: Path) -> Any:
    if kind == "kafka":
        from suiro.kafka import KafkaProcess

        return KafkaProcess.start(directory)
    from suiro.node import NodeProcess

    return NodeProcess.start(data=directory)


class Bench:
    def __init__(self, bootstrap: str, records: int, value_bytes: int) -> None:
        self.bootstrap = bootstrap
        self.records = records
        self.value_bytes = value_bytes
        self.spark = suiro.spark.spark_session("spark_rows")
        self.source = self.topic()

    def run(self, small: int) -> None:
        rows = self.spark.range(0, self.records, 1, 4).selectExpr(
            "cast(cast(id as string) as binary) key", f"repeat(char(65 + id % 26), {self.value_bytes}) value"
        )
        started = time.monotonic()
        self.write(rows.write.mode("append"), self.source).save()
        self.tell("batch write, cold", time.monotonic() - started)
        read = self.read(str(self.records // 4))
        works = {
            "source": lambda: read.writeStream.format("noop"),
            "Kafka -> Kafka": lambda: self.write(read.select("key", "value").writeStream, self.topic()),
        }
        for name, work in works.items():
            self.stream(work())
            self.tell(f"{name}, stream", self.stream(work())[0])
        self.write(rows.write.mode("append"), self.topic()).save()
        started = time.monotonic()
        self.write(rows.write.mode("append"), self.topic()).save()
        self.tell("sink, batch", time.monotonic() - started)
        self.small(small)

    def small(self, count: int) -> None:
        limit = 100
        topic = self.topic()
        some = self.spark.range(0, count * limit, 1, 1).selectExpr(
            "cast(cast(id as string) as binary) key", "'v' value"
        )
        self.write(some.write.mode("append"), topic).save()
        read = self.read(str(limit), topic)
        _, steps = self.stream(self.write(read.select("key", "value").writeStream, self.topic()))
        warm = steps[len(steps) // 2 :]
        for name in (
            "triggerExecution",
            "addBatch",
            "walCommit",
            "commitOffsets",
            "latestOffset",
            "queryPlanning",
        ):
            print(f"  small micro-batch, {name}: {statistics.median(step.get(name, 0) for step in warm):.0f} ms")

    def topic(self) -> str:
        name = f"bench-{uuid.uuid4().hex[:8]}"
        with Client(self.bootstrap) as client:
            client.create_topics([NewTopic(name, 4)])
        return name

    def read(self, limit: str, topic: str | None = None) -> Any:
        reader = self.spark.readStream.format("suiro").option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.option("subscribe", topic or self.source).option("startingOffsets", "earliest")
        return reader.option("maxOffsetsPerTrigger", limit).load()

    def write(self, writer: Any, topic: str) -> Any:
        writer = writer.format("suiro").option("kafka.bootstrap.servers", self.bootstrap)
        return writer.option("topic", topic).option("application.id", topic)

    def stream(self, writer: Any) -> tuple[float, list[dict[str, int]]]:
        with tempfile.TemporaryDirectory(prefix="suiro-bench-checkpoint-") as checkpoint:
            started = time.monotonic()
            query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            query.awaitTermination()
            return time.monotonic() - started, [dict(item["durationMs"]) for item in query.recentProgress]

    def tell(self, name: str, seconds: float) -> None:
        megabytes = self.records * (8 + self.value_bytes) / 1e6
        print(f"{name}: {self.records / seconds:,.0f} rows/s, {megabytes / seconds:,.0f} MB/s", flush=True)


if __name__ == "__main__":
    sys.exit(load.run(main))
