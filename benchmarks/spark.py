"""suiro's Spark source and exactly-once sink beside Spark's own Kafka connector (whose sink is at least once).

    python benchmarks/spark.py [--rounds 3] [--records 2000000] [--log kafka|node]

Both read and write the same broker, one after the other in each round, each in a Spark session of its own
(`local[2]`): suiro's with suiro's settings, the connector's with Spark's defaults and the jars. A work is run once
to warm up and once measured, over all records with `Trigger.AvailableNow` in micro-batches of a fourth of them.

suiro's sink is measured a second time with tasks that send (`producer.tasks`), as on a cluster whose driver's network
is what limits. Here all of it is one machine, so this shows what it costs, not what it is for.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import load
from peers import connector_jars, produce
from table import Row, show

from suiro.client import Client, NewTopic
from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess
from suiro.spark import exactly_once

VALUE_BYTES = 100
BY_TASKS = "sink, tasks send"


def session(subject: str) -> Any:
    from suiro.spark import register, spark_session

    if subject == "suiro":
        spark = spark_session("bench", master="local[2]")
        register(spark)
        return spark
    from pyspark.sql import SparkSession

    from suiro.spark.java import use_java

    use_java()
    jars = ",".join(str(jar) for jar in connector_jars())
    spark = (
        SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", jars).getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run_one(subject: str, *, bootstrap: str, topic: str, records: int, parquet: str) -> dict[str, float]:
    """Rows a second of the three works, in this process."""
    spark = session(subject)
    format_name = "suiro" if subject == "suiro" else "kafka"
    rows_per_batch = records // 4

    def read() -> Any:
        return (
            spark.readStream.format(format_name).option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic).option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(rows_per_batch)).load()
        )  # fmt: skip

    def seconds(work: Callable[[str], Any]) -> float:
        with tempfile.TemporaryDirectory(prefix="suiro-bench-checkpoint-") as checkpoint:
            writer = work(checkpoint)
            started = time.monotonic()
            query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            query.awaitTermination()
            return time.monotonic() - started

    def new_topic() -> dict[str, str]:
        name = f"out-{subject}-{uuid.uuid4().hex[:8]}"
        with Client(bootstrap) as client:
            client.create_topics([NewTopic(name=name, partitions=4)])
        return {"kafka.bootstrap.servers": bootstrap, "topic": name, "application.id": name}

    def to_topic(frame: Any) -> Any:
        return frame.writeStream.format(format_name).options(**new_topic())

    def sent_by_tasks(frame: Any, checkpoint: str) -> Any:
        options = new_topic() | {"checkpointLocation": checkpoint, "producer.tasks": "2"}
        return frame.writeStream.foreachBatch(exactly_once(options))

    def from_files() -> Any:
        files = spark.readStream.schema("key binary, value binary").option("maxFilesPerTrigger", 1)
        return files.parquet(parquet)

    works: dict[str, Callable[[str], Any]] = {
        "source": lambda _: read().writeStream.format("noop"),
        "sink": lambda _: to_topic(from_files()),
        "Kafka -> Kafka": lambda _: to_topic(read().select("key", "value")),
    }
    if subject == "suiro":
        works[BY_TASKS] = lambda checkpoint: sent_by_tasks(from_files(), checkpoint)
    rates: dict[str, float] = {}
    for name, work in works.items():
        seconds(work)
        rates[name] = records / seconds(work)
        print(f"{subject} {name}: {rates[name]:,.0f} rows/s", file=sys.stderr)
    spark.stop()
    return rates


def write_parquet(directory: str, records: int) -> None:
    """Four files of rows with keys of 8 and values of 100 bytes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    each = records // 4
    random = np.random.default_rng(2013)
    for file in range(4):
        keys = random.integers(0, 2**62, each, dtype=np.int64).tobytes()
        values = random.integers(32, 127, each * VALUE_BYTES, dtype=np.uint8).tobytes()
        table = pa.table(
            {
                "key": pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), each, [None, pa.py_buffer(keys)]),
                "value": pa.FixedSizeBinaryArray.from_buffers(
                    pa.binary(VALUE_BYTES), each, [None, pa.py_buffer(values)]
                ),
            }
        ).cast(pa.schema([("key", pa.binary()), ("value", pa.binary())]))
        pq.write_table(table, f"{directory}/{file}.parquet", compression="none")


TARGETS = {"source": 2.5, "sink": 1.3, "Kafka -> Kafka": 1.5}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--log", choices=("kafka", "node"), default="kafka", help="the broker both work on")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        job = json.loads(arguments.one)
        result = Path(job.pop("result"))  # a file: Spark's JVM writes to stdout as well
        result.write_text(json.dumps(run_one(**job)))
        return

    from suiro.client import Client, NewTopic
    from suiro.kafka import KafkaProcess
    from suiro.node import NodeProcess

    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="suiro-bench-") as directory:
        parquet = Path(directory) / "rows"
        parquet.mkdir()
        write_parquet(str(parquet), arguments.records)
        data = Path(directory) / "log"
        broker: KafkaProcess | NodeProcess = (
            KafkaProcess.start(data) if arguments.log == "kafka" else NodeProcess.start(data=data)
        )
        try:
            with Client(broker.bootstrap_servers) as client:
                client.create_topics([NewTopic(name="in", partitions=4)])
            produce(broker.bootstrap_servers, "in", records=arguments.records, record_bytes=VALUE_BYTES)
            for _ in range(arguments.rounds):
                for subject in ("suiro", "connector"):
                    job = {
                        "subject": subject, "bootstrap": broker.bootstrap_servers, "topic": "in",
                        "records": arguments.records, "parquet": str(parquet),
                        "result": f"{directory}/result.json",
                    }  # fmt: skip
                    subprocess.run([sys.executable, __file__, "--one", json.dumps(job)], check=True)
                    for name, rate in json.loads(Path(job["result"]).read_text()).items():
                        figures[name][subject].append(rate)
        finally:
            broker.stop()
    names = {
        "source": "connector's source",
        "sink": "connector's sink, at least once",
        "Kafka -> Kafka": "connector's stream, at least once",
    }
    show(
        f"Spark on {arguments.log}, {arguments.rounds} rounds, {arguments.records:,} records of 100 B",
        [
            Row(
                work=name if name == "source" else f"{name}, exactly once", unit="rows/s", peer=names[name],
                ours=tuple(figures[name]["suiro"]), theirs=tuple(figures[name]["connector"]), target=target,
            )
            for name, target in TARGETS.items()
        ]
        + [
            Row(
                work=f"{BY_TASKS}, exactly once", unit="rows/s", peer=names["sink"],
                ours=tuple(figures[BY_TASKS]["suiro"]), theirs=tuple(figures["sink"]["connector"]),
            )
        ],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(load.run(main))
