"""Queries q0 to q3 of Nexmark as PySpark's users write them: Structured Streaming, Python UDFs over JSON, Spark's own
Kafka connector, whose sink is at least once.

    python benchmarks/nexmark_pyspark.py QUERY BOOTSTRAP GROUP OUTPUT READY_FILE STATE_FOLDER THREADS

A UDF is called once for a record and leaves out what a query filters, so a record goes to Python and back once. The
session has Spark's defaults, but shuffles have as many partitions as the topics, not 200. The connector commits no
offsets, so this commits for GROUP what each finished micro-batch has read: so `application.py` sees the end of every
side.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nexmark_events import PARTITIONS
from peers import connector_jars

from suiro.client import Client
from suiro.spark.java import use_java

LOOK_S = 0.05
RATE = 0.908


def session(threads: int) -> Any:
    from pyspark.sql import SparkSession

    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # otherwise the first python3 of the PATH
    spark = (
        SparkSession.builder.master(f"local[{threads}]").appName("nexmark")
        .config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        .config("spark.jars", ",".join(map(str, connector_jars()))).getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def q0(value: bytes) -> str:
    bid = json.loads(value)
    return json.dumps({name: bid[name] for name in ("auction", "bidder", "price", "dateTime", "extra")})


def q1(value: bytes) -> str:
    bid = json.loads(value)
    return json.dumps(
        {
            "auction": bid["auction"],
            "bidder": bid["bidder"],
            "price": RATE * bid["price"],
            "dateTime": bid["dateTime"],
            "extra": bid["extra"],
        }
    )


def q2(value: bytes) -> str | None:
    bid = json.loads(value)
    return json.dumps({"auction": bid["auction"], "price": bid["price"]}) if bid["auction"] % 123 == 0 else None


def sold(value: bytes) -> tuple[int, int] | None:
    auction = json.loads(value)
    return (auction["id"], auction["seller"]) if auction["category"] == 10 else None


def near(value: bytes) -> tuple[int, str, str, str] | None:
    person = json.loads(value)
    if person["state"] not in ("OR", "ID", "CA"):
        return None
    return person["id"], person["name"], person["city"], person["state"]


def met(name: str, city: str, state: str, auction: int) -> str:
    return json.dumps({"name": name, "city": city, "state": state, "id": auction})


def mapped(work: Callable[[bytes], str | None]) -> Callable[[Callable[[str], Any]], Any]:
    """Rows of key and value, of a function from a bid's bytes to the new ones."""

    def build(read: Callable[[str], Any]) -> Any:
        from pyspark.sql.functions import udf

        # Not deterministic: otherwise Spark moves the filter below and calls the function twice for each record.
        changed = udf(work, "string").asNondeterministic()
        return read("bid").select("key", changed("value").alias("value")).where("value IS NOT NULL")

    return build


def q3(read: Callable[[str], Any]) -> Any:
    from pyspark.sql.functions import col, udf

    auctions = udf(sold, "id long, seller long").asNondeterministic()
    people = udf(near, "person long, name string, city string, state string").asNondeterministic()
    of_auctions = read("auction").select(auctions("value").alias("it")).where("it IS NOT NULL").select("it.*")
    of_people = read("person").select(people("value").alias("it")).where("it IS NOT NULL").select("it.*")
    found = of_auctions.join(of_people, col("seller") == col("person"))
    return found.select(
        col("id").cast("string").alias("key"),
        udf(met, "string")("name", "city", "state", "id").alias("value"),
    )


QUERIES: dict[str, Callable[[Callable[[str], Any]], Any]] = {
    "q0": mapped(q0), "q1": mapped(q1), "q2": mapped(q2), "q3": q3,
}  # fmt: skip


def commit(client: Client, group: str, progress: Any) -> None:
    """What a micro-batch has read, as the offsets of a group."""
    offsets: dict[tuple[str, int], tuple[int, str]] = {}
    for source in progress["sources"]:
        ends = source["endOffset"]
        for topic, partitions in (json.loads(ends) if isinstance(ends, str) else ends or {}).items():
            offsets.update({(topic, int(partition)): (offset, "") for partition, offset in partitions.items()})
    if offsets:
        client.offset_commit(group, offsets)


def main() -> int:
    if len(sys.argv) != 8:
        print(__doc__, file=sys.stderr)
        return 2
    query, bootstrap, group, output, ready, state, threads = sys.argv[1:]
    spark = session(int(threads))

    def read(topic: str) -> Any:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    writer = QUERIES[query](read).writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    running = writer.option("topic", output).option("checkpointLocation", state).start()
    Path(ready).write_text(str(int(time.time() * 1000)))
    committed = -1
    with Client(bootstrap) as client:
        while running.isActive:
            progress = running.lastProgress
            if progress is not None and progress["batchId"] > committed:
                commit(client, group, progress)
                committed = progress["batchId"]
            time.sleep(LOOK_S)
    running.awaitTermination()  # raises what ended it
    return 0


if __name__ == "__main__":
    sys.exit(main())
