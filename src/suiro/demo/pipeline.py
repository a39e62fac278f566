"""The demo's pipeline: three Structured Streaming queries in one driver process.

    flights.raw -> flights.validated + flights.rejected -> flights.enriched -> carrier.delays

Everything is a native Spark expression: no Python code sees a record. Each query is one application, and each
of its micro-batches one Kafka transaction. `python -m suiro.demo.pipeline` is the driver that the demo starts,
kills and starts again; it ends when its standard input closes, so that it never outlives the demo.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from suiro.demo.dataset import FLIGHT_COLUMNS
from suiro.demo.names import (
    AIRLINES,
    AIRPORTS,
    DELAYS,
    ENRICHED,
    PLANES,
    QUERIES,
    RAW,
    REFERENCES,
    REJECTED,
    VALIDATED,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["delays", "enriched", "latest", "validated", "with_verdict"]

KEY_COLUMNS = ("carrier", "flight", "origin", "time_hour", "minute")
FLIGHT_SCHEMA = ", ".join(f"{name} {'string' if text else 'bigint'}" for name, text in FLIGHT_COLUMNS.items())
REFERENCE_SCHEMAS = {
    AIRLINES: "carrier string, name string",
    AIRPORTS: "faa string, name string, lat double, lon double, alt bigint, tz bigint, dst string, tzone string",
    PLANES: (
        "tailnum string, year bigint, type string, manufacturer string, model string, engines bigint, "
        "seats bigint, speed bigint, engine string"
    ),
}

NO_JSON = "the value is not a JSON object of a flight"
NO_KEY_COLUMN = "a key column is missing: "
NO_ARRIVAL_DELAY = "departed, but has no arrival delay"

POLL_S = 0.5

# A driver that lives for a minute spends half of it in the JVM's second compiler; the first one is enough for it.
SHORT_LIFE = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


# -- flights.raw -> flights.validated + flights.rejected ----------------------------------------------------


def with_verdict(raw: DataFrame) -> DataFrame:
    """`raw` with the parsed `flight` and the `reason` to reject it (null: it is valid)."""
    parsed = F.from_json(
        F.col("value").cast("string"),
        f"{FLIGHT_SCHEMA}, _corrupt string",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"},
    )
    flight = F.col("flight")
    missing = F.concat_ws(", ", *(F.when(flight[name].isNull(), F.lit(name)) for name in KEY_COLUMNS))
    reason = (
        F.when(flight.isNull() | flight["_corrupt"].isNotNull(), F.lit(NO_JSON))
        .when(missing != "", F.concat(F.lit(NO_KEY_COLUMN), missing))
        .when(flight["dep_time"].isNotNull() & flight["arr_delay"].isNull(), F.lit(NO_ARRIVAL_DELAY))
    )
    return raw.withColumn("flight", parsed).withColumn("reason", reason)


def validated(raw: DataFrame) -> DataFrame:
    """Every raw record once, to the topic its verdict says, with its key and its bytes as they came.

    A rejected one tells why and where it came from in its headers.
    """
    headers = F.array(
        _header("reason", F.col("reason")),
        _header("topic", F.col("topic")),
        _header("partition", F.col("partition").cast("string")),
        _header("offset", F.col("offset").cast("string")),
    )
    rejected = F.col("reason").isNotNull()
    return with_verdict(raw).select(
        F.when(rejected, F.lit(REJECTED)).otherwise(F.lit(VALIDATED)).alias("topic"),
        "key",
        "value",
        F.when(rejected, headers).alias("headers"),
    )


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


# -- flights.validated -> flights.enriched -------------------------------------------------------------------


def latest(records: DataFrame, schema: str) -> DataFrame:
    """A compacted topic as a table: the last value of each key, parsed."""
    last = records.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
    return (
        last.where(F.col("value").isNotNull())
        .select(F.from_json(F.col("value").cast("string"), schema).alias("row"))
        .select("row.*")
    )


def enriched(flights: DataFrame, *, airlines: DataFrame, airports: DataFrame, planes: DataFrame) -> DataFrame:
    """Each flight with its airline's name, its destination and its plane; null where they are not known."""
    flight = flights.select("key", F.from_json(F.col("value").cast("string"), FLIGHT_SCHEMA).alias("flight"))
    airline = airlines.select(F.col("carrier").alias("airline_code"), F.col("name").alias("airline"))
    destination = airports.select(
        F.col("faa").alias("destination_code"), F.struct("name", "lat", "lon", "tzone").alias("destination")
    )
    plane = planes.select(
        F.col("tailnum").alias("plane_code"),
        F.struct("year", "type", "manufacturer", "model", "seats").alias("plane"),
    )
    joined = (
        flight.join(F.broadcast(airline), F.col("flight.carrier") == F.col("airline_code"), "left")
        .join(F.broadcast(destination), F.col("flight.dest") == F.col("destination_code"), "left")
        .join(F.broadcast(plane), F.col("flight.tailnum") == F.col("plane_code"), "left")
    )
    value = F.to_json(F.struct("flight.*", "airline", "destination", "plane"), {"ignoreNullFields": "false"})
    return joined.select("key", value.alias("value"))


# -- flights.enriched -> carrier.delays ----------------------------------------------------------------------


def delays(flights: DataFrame) -> DataFrame:
    """Per carrier, running: flights, cancelled, mean delays. One row per carrier and micro-batch.

    Sums stay whole numbers and are divided last, so that no order of the records changes a mean.
    """
    flight = flights.select(F.from_json(F.col("value").cast("string"), FLIGHT_SCHEMA).alias("flight")).select(
        "flight.*"
    )
    totals = flight.groupBy("carrier").agg(
        F.count("*").alias("flights"),
        F.count(F.when(F.col("dep_time").isNull(), 1)).alias("cancelled"),
        F.sum("dep_delay").alias("dep_total"),
        F.count("dep_delay").alias("dep_count"),
        F.sum("arr_delay").alias("arr_total"),
        F.count("arr_delay").alias("arr_count"),
    )
    row = F.struct(
        "carrier",
        "flights",
        "cancelled",
        (F.col("dep_total") / F.col("dep_count")).alias("mean_dep_delay"),
        (F.col("arr_total") / F.col("arr_count")).alias("mean_arr_delay"),
    )
    return totals.select(
        F.col("carrier").cast("binary").alias("key"),
        F.to_json(row, {"ignoreNullFields": "false"}).alias("value"),
    )


# -- the driver ----------------------------------------------------------------------------------------------


def start(
    spark: SparkSession, *, bootstrap_servers: str, checkpoints: Path, max_offsets_per_trigger: int
) -> list[StreamingQuery]:
    """Starts the three queries; each goes on where its checkpoint says."""
    from suiro.spark import exactly_once

    def stream(topic: str) -> DataFrame:
        reader = spark.readStream.format("suiro").option("kafka.bootstrap.servers", bootstrap_servers)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        return reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger).load()

    # Read once, all three in one job. As local relations they join without a job in every micro-batch.
    reader = spark.read.format("suiro").option("kafka.bootstrap.servers", bootstrap_servers)
    read = reader.option("subscribe", ",".join(REFERENCES)).load()
    records = spark.createDataFrame(read.select("topic", "key", "value", "offset").toArrow())

    def table(topic: str) -> DataFrame:
        rows = latest(records.where(F.col("topic") == topic), REFERENCE_SCHEMAS[topic])
        return spark.createDataFrame(rows.toArrow())

    airlines, airports, planes = (table(name) for name in REFERENCES)

    def sink_options(application: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": bootstrap_servers,
            "application.id": application,
            "checkpointLocation": str(checkpoints / application),
            "staging.dir": str(checkpoints / "staging"),
        }

    validate, enrich, aggregate = QUERIES
    known = enriched(stream(VALIDATED), airlines=airlines, airports=airports, planes=planes)
    validating = validated(stream(RAW)).writeStream.format("suiro").options(**sink_options(validate))
    enriching = known.writeStream.format("suiro").options(**sink_options(enrich), topic=ENRICHED)
    # Spark lets Python sinks append only. A running aggregation updates, so it goes through foreachBatch: the
    # same transaction, the same options.
    options = sink_options(aggregate)
    write = exactly_once(options | {"topic": DELAYS})
    aggregating = delays(stream(ENRICHED)).writeStream.outputMode("update").foreachBatch(write)
    aggregating = aggregating.option("checkpointLocation", options["checkpointLocation"])
    writers = zip(QUERIES, (validating, enriching, aggregating), strict=True)
    return [writer.queryName(application).start() for application, writer in writers]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until standard input closes (0) or a query fails (1, with its error on standard error)."""
    parser = argparse.ArgumentParser(prog="python -m suiro.demo.pipeline", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--max-offsets-per-trigger", type=int, required=True)
    options = parser.parse_args(arguments)

    from suiro.spark import spark_session

    told_to_stop = threading.Event()

    def wait_for_end_of_input() -> None:
        sys.stdin.read()
        told_to_stop.set()

    threading.Thread(target=wait_for_end_of_input, daemon=True).start()
    spark = spark_session("suiro demo", master="local[2]", settings=SHORT_LIFE)
    queries = start(
        spark,
        bootstrap_servers=options.bootstrap_servers,
        checkpoints=options.checkpoints,
        max_offsets_per_trigger=options.max_offsets_per_trigger,
    )
    failed = 0
    while not told_to_stop.wait(POLL_S):
        ended = [query for query in queries if not query.isActive]
        if ended:
            for query in ended:
                print(f"query {query.name} ended: {query.exception()}", file=sys.stderr, flush=True)
            failed = 1
            break
    for query in queries:
        query.stop()
    spark.stop()
    return failed


if __name__ == "__main__":
    sys.exit(main())
