"""The driver of one of the applications, as a user would write it, until standard input closes:
`python -m tests.soak.driver copy|count|join BOOTSTRAP DIRECTORY`.

A query that ends because something was away or has died is started again. One that says that going on would be wrong is
not: the process ends and says why, in a JSON line like all that it says.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from suiro.errors import FatalError, FencedError, UsageError
from suiro.spark import spark_session
from suiro.streams import KafkaStreams
from suiro.streams_spark.runner import cause_of
from tests.soak.records import COPIED, SOURCE
from tests.soak.topology import counts, join

APPLICATIONS = {"copy": "soak-copy", "count": "soak-count", "join": "soak-join"}
TOPOLOGIES = {"count": counts, "join": join}
TRANSACTION_TIMEOUT_MS = 15_000
RECORDS_MAX = "20000"  # of a micro-batch
RESTARTS_MAX = 10  # without a micro-batch between them
WAIT_S = 0.5
FENCED, SUPERSEDED, STOPPED, GAVE_UP = "fenced", "superseded", "stopped", "gave up"
# Four attempts of a task: in local mode Spark makes one, and the death of a worker would end the query.
MASTER = "local[2,4]"
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.memory": "768m",
    # Spark gives a new Python worker 15 s; on a machine with much else to do that ended one query after the other.
    "spark.python.authenticate.socketTimeout": "120s",
}
SPARK_IS_GONE = (
    "Py4JError",
    "Py4JNetworkError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "BrokenPipeError",
)

Run = Callable[[Any, str, Path], "Running"]


class Running:
    """A query under way, and how to end it."""

    def __init__(self, query: Any, close: Callable[[], None]) -> None:
        self.query = query
        self.close = close


def copy(spark: Any, bootstrap: str, directory: Path) -> Running:
    rows = (
        spark.readStream.format("suiro")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_MAX)
        .load()
    )
    query = (
        rows.select("key", "value")
        .writeStream.format("suiro")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
        .option("application.id", APPLICATIONS["copy"])
        .option("topic", COPIED)
        .option("checkpointLocation", str(directory / "copy"))
        .start()
    )
    return Running(query, query.stop)


def run_topology(what: str, spark: Any, bootstrap: str, directory: Path) -> Running:
    streams = KafkaStreams(
        TOPOLOGIES[what](),
        application_id=APPLICATIONS[what],
        bootstrap_servers=bootstrap,
        spark=spark,
        state_dir=directory,
        emit="every",
        max_offsets_per_trigger=int(RECORDS_MAX),
        settings={"kafka.transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS)},
    )
    streams.start()
    return Running(streams.query, streams.close)


def main(what: str, bootstrap: str, directory: str) -> int:
    told_to_stop = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        told_to_stop.set()

    threading.Thread(target=listen, daemon=True).start()
    spark = spark_session(f"soak {what}", master=MASTER, settings=SETTINGS)
    run: Run = copy if what == "copy" else partial(run_topology, what)
    restarts = 0
    while not told_to_stop.is_set():
        batch = -1
        try:
            running = run(spark, bootstrap, Path(directory))
            say(event="started")
            while running.query.isActive and not told_to_stop.wait(WAIT_S):
                batch = max(batch, (running.query.lastProgress or {"batchId": -1})["batchId"])
            failure = running.query.exception()
            running.close()
            if failure is None:
                break
            raise failure
        except Exception as error:
            restarts = 0 if batch >= 0 else restarts + 1
            kind = verdict(cause := cause_of(error), restarts)
            why = f"{type(cause).__name__}: {cause}".strip()
            say(event="failed", kind=kind or "restarted", why=why[:1500])
            if kind is not None:
                return 1
    spark.stop()
    return 0


def verdict(cause: BaseException, restarts: int) -> str | None:
    """Whether the query must not go on; None: it is started again."""
    if isinstance(cause, FencedError):
        return FENCED
    if "CONCURRENT_STREAM_LOG_UPDATE" in str(cause) or "CONCURRENT_QUERY" in str(cause):
        return SUPERSEDED
    if isinstance(cause, (FatalError, UsageError)):
        return STOPPED
    if type(cause).__name__ in SPARK_IS_GONE or restarts > RESTARTS_MAX:
        return GAVE_UP
    return None


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
