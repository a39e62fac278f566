"""Delay through a stateless stage at a steady rate: from a record's produce to its read by a read_committed consumer.

    python benchmarks/latency.py [--rate 10000] [--seconds 30] [--log kafka|node] [--only SUBJECT]

One after the other on one broker: a topology of suiro.streams and a query on format "suiro", both exactly once, and a
query on Spark's own Kafka connector, at least once; each with the settings it has when nobody sets any, and all do the
same: values in upper case. Producer and consumer are librdkafka's, in this process, so one clock measures: a record's
value begins with the time at which it was handed to the producer. The first part of the run, until Java has compiled
what it runs, does not count.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import load
from sides import quantile
from spark import session
from table import Row, show

from suiro.client import Client, NewTopic
from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess

SUBJECTS = {
    "streams": "suiro.streams, exactly once",
    "format": 'format "suiro", exactly once',
    "connector": "Spark's connector, at least once",
}
PARTITIONS = 4
VALUE_BYTES = 100
WARM_UP_S = 60.0
START_S = 120.0
TICK_S = 0.005
READ_S = 0.005  # librdkafka gathers for all of this time unless it has as many as were asked for: it adds to the delay


def run_subject(subject: str, bootstrap: str, source: str, output: str, checkpoint: str) -> None:
    """In a process of its own, until it is terminated."""
    if subject == "streams":
        from streams_app import topology

        from suiro.streams import KafkaStreams

        built = topology("map", source, "", output)
        streams = KafkaStreams(built, application_id=output, bootstrap_servers=bootstrap, state_dir=checkpoint)
        streams.start()
        streams.await_termination()
        return
    spark = session("suiro" if subject == "format" else "connector")
    kind = "suiro" if subject == "format" else "kafka"
    rows = (
        spark.readStream.format(kind).option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source).option("startingOffsets", "earliest").load()
    )  # fmt: skip
    changed = rows.selectExpr("key", "cast(upper(cast(value as string)) as binary) value")
    writer = changed.writeStream.format(kind).option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", output).option("application.id", output)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


class Feed(threading.Thread):
    """So many records a second, evenly, until `end` is called."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        super().__init__(daemon=True)
        from confluent_kafka import Producer

        self._producer: Any = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1})
        self._topic, self._rate = topic, rate
        self._ended = threading.Event()
        self.sent = 0

    def run(self) -> None:
        filler = b"x" * (VALUE_BYTES - 20)
        began = time.monotonic()
        while not self._ended.wait(TICK_S):
            due = int((time.monotonic() - began) * self._rate)
            while self.sent < due:
                value = b"%020d" % time.monotonic_ns() + filler
                self._producer.produce(self._topic, value, b"%08d" % (self.sent % 100_000))
                self.sent += 1
            self._producer.poll(0)
        self._producer.flush(30)

    def end(self) -> None:
        self._ended.set()
        self.join()


def delays(bootstrap: str, subject: str, *, rate: int, seconds: float, warm_up: float, work: Path) -> list[float]:
    """Milliseconds, sorted."""
    from confluent_kafka import Consumer

    source, output = f"in-{subject}", f"out-{subject}"
    with Client(bootstrap) as client:
        client.create_topics([NewTopic(name=name, partitions=PARTITIONS) for name in (source, output)])
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": f"latency-{subject}", "auto.offset.reset": "earliest",
        "isolation.level": "read_committed", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([output])
    command = [sys.executable, __file__, "--one", subject, bootstrap, source, output, str(work / subject)]
    with (work / f"{subject}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    feed = Feed(bootstrap, source, rate)
    feed.start()
    found: list[float] = []
    first = 0.0
    began = time.monotonic()
    try:
        while not first or time.monotonic() < first + warm_up + seconds:
            messages = consumer.consume(2_000, READ_S)
            now = time.monotonic()
            if not first and (process.poll() is not None or now > began + START_S):
                raise RuntimeError(f"{subject} gave nothing: {(work / f'{subject}.log').read_text()[-2000:]}")
            if messages and not first:
                first = now
            if first and now > first + warm_up:
                found += [(now - int(message.value()[:20]) / 1e9) * 1000 for message in messages]
    finally:
        feed.end()
        consumer.close()
        process.terminate()
        process.wait()
    if len(found) < rate * seconds * 0.9:
        print(f"{subject} did not keep up: {len(found):,} of {rate * seconds:,.0f} records", file=sys.stderr)
    return sorted(found)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        run_subject(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, metavar="SECONDS")
    parser.add_argument("--log", choices=("kafka", "node"), default="node", help="the broker all work on")
    parser.add_argument("--only", choices=SUBJECTS, action="append")
    options = parser.parse_args()
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="suiro-bench-", ignore_cleanup_errors=True) as name:
        data = Path(name) / "log"
        broker: KafkaProcess | NodeProcess = (
            KafkaProcess.start(data) if options.log == "kafka" else NodeProcess.start(data=data)
        )
        try:
            for subject in options.only or SUBJECTS:
                found = figures[subject] = delays(
                    broker.bootstrap_servers, subject, rate=options.rate, seconds=options.seconds,
                    warm_up=options.warm_up, work=Path(name),
                )  # fmt: skip
                middle, high = quantile(found, 0.5), quantile(found, 0.99)
                print(f"{SUBJECTS[subject]}: median {middle:.0f} ms, p99 {high:.0f} ms", flush=True)
        finally:
            broker.stop()
    if "connector" not in figures:
        return
    peer = figures.pop("connector")
    show(
        f"Delay at {options.rate:,} records/s on {options.log}; to be met by a topology: 100 ms, p99 250 ms",
        [
            Row(
                work=f"{SUBJECTS[subject]}: {name}", unit="ms", peer=SUBJECTS["connector"], target=1.0,
                ours=(quantile(found, share),), theirs=(quantile(peer, share),), less_is_better=True,
            )
            for subject, found in figures.items()
            for name, share in (("median", 0.5), ("p99", 0.99))
        ],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(load.run(main))
