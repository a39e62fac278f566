"""A job as people write it for Spark's own Kafka connector; argv: "kafka" or "suiro", and its options as JSON.

It passes each value on once, ever: the state of `dropDuplicates` must live through the change of format.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def session(name: str) -> Any:
    if name == "suiro":
        from suiro.spark import register, spark_session

        spark = spark_session("moving", master="local[2]")
        register(spark)
        return spark
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    from peers import connector_jars
    from pyspark.sql import SparkSession

    from suiro.spark.java import use_java

    use_java()
    jars = ",".join(map(str, connector_jars()))
    return SparkSession.builder.master("local[2]").config("spark.jars", jars).getOrCreate()


def main() -> None:
    name, given = sys.argv[1], json.loads(sys.argv[2])
    spark = session(name)
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    frame = spark.readStream.format(name).options(**given["kafka"], **given["read"]).load()
    rows = frame.dropDuplicates(["value"]).selectExpr("key", "value")
    writer = rows.writeStream.format(name).options(**given["kafka"], **given["write"])
    if name == "suiro":
        writer = writer.option("application.id", given["application"])
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
