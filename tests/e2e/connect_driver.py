"""A client of Spark Connect, as a process of its own, since one process has either this or a Spark of its own.

    python -m tests.e2e.connect_driver REMOTE BOOTSTRAP DIRECTORY

Reads and writes by format suiro, batch and stream; then what Connect cannot do, printed as JSON: name -> the message.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

import suiro.spark
from suiro.streams import KafkaStreams, StreamsBuilder, serdes

ROWS = 200


def main(remote: str, bootstrap: str, directory: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    suiro.spark.register(spark)
    kafka = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.range(ROWS).selectExpr("cast(id as string) key", "cast(id * 2 as string) value")
    rows.write.format("suiro").options(**kafka, topic="in").mode("append").save()
    found = spark.read.format("suiro").options(**kafka, subscribe="in").load()
    assert found.count() == ROWS

    stream = spark.readStream.format("suiro").options(
        **kafka, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="70"
    )
    options = kafka | {
        "application.id": "connect",
        "checkpointLocation": f"{directory}/connect",
        "topic": "out",
    }
    query = (
        stream.load()
        .select("key", "value")
        .writeStream.format("suiro")
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    written = spark.read.format("suiro").options(**kafka, subscribe="out").load()
    pairs = sorted((int(row.key), int(row.value)) for row in written.collect())
    assert pairs == [(number, number * 2) for number in range(ROWS)], pairs

    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).to("out")
    streams = KafkaStreams(
        builder.build(),
        application_id="topology",
        bootstrap_servers=bootstrap,
        spark=spark,
        state_dir=Path(directory) / "state",
    )
    refused = {
        "KafkaStreams": message(streams.start),
        "exactly_once": message(lambda: suiro.spark.exactly_once(options)),
    }
    print(json.dumps(refused), flush=True)
    spark.stop()


def message(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
