"""suiro.streams beside Kafka Streams, both exactly once: a map, a count, a windowed count, a stream-table join.

    python benchmarks/streams.py [--rounds 3] [--records 5000000] [--workloads map,count,windowed,join]
                                 [--broker kafka|node] [--only suiro|kafka-streams]

Both run the same topology (`streams_app.py`, `kafka_streams/KafkaStreamsPeer.java`) in a process of its own, one after
the other in each round, on the same broker and the same input topic of 4 partitions: values of 80 B, 100,000 keys of
8 to 12 B, 10 records a millisecond; the join's table has all keys. Kafka Streams has 2 threads, exactly once v2, a heap
of 1 GB, and otherwise its defaults (commit every 100 ms, 10 MB of cache, RocksDB).

How time and memory are taken is in `application.py`. The output is read back (read_committed) and checked.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import application
import load
import numpy as np
import pyarrow as pa
from application import Failed, Measured
from peers import Unavailable, kafka_streams, kafka_streams_command
from rich.console import Console
from rich.table import Table
from table import figure

from suiro.client import Client, NewTopic
from suiro.foundation.types import TopicPartition
from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess
from suiro.protocol.columnar import decode, encode, partitions_of

TARGETS = {"map": 3.0, "count": 6.0, "windowed": 5.0, "join": 2.5}
SUBJECTS = ("suiro", "kafka-streams")
PARTITIONS = 4
KEYS = 100_000
VALUE_BYTES = 80
RECORDS_PER_MS = 10
THREADS = 2
HEAP = "1g"
BATCH_BYTES = 128 * 1024  # as large as the other benchmarks' producer makes them
CHUNK = 250_000
INPUT, TABLE = "in", "table"


def fill(client: Client, records: int) -> None:
    """The input and the table. The table's timestamps come before all of the input's."""
    client.create_topics([NewTopic(name, PARTITIONS) for name in (INPUT, TABLE)])
    keys = pa.array([f"client-{number}" for number in range(KEYS)])
    span_ms = records // RECORDS_PER_MS
    start_ms = (int(time.time() * 1000) - span_ms) // 60_000 * 60_000
    random = np.random.default_rng(2013)

    def rows(count: int, keys: pa.Array, timestamps: Any, topic: str) -> Iterator[tuple[str, int, bytes]]:
        letters = random.integers(ord("a"), ord("z") + 1, count * VALUE_BYTES, dtype=np.uint8).tobytes()
        values = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(VALUE_BYTES), count, [None, pa.py_buffer(letters)]
        ).cast(pa.binary())
        batches = encode(
            keys=keys, values=values, timestamps=timestamps,
            partitions=partitions_of(keys, PARTITIONS), num_partitions=PARTITIONS, max_batch_bytes=BATCH_BYTES,
        )  # fmt: skip
        # In turn over the partitions: the client has a batch of each under way.
        batches.sort(key=lambda batch: batch.max_timestamp)
        for batch in batches:
            yield topic, batch.partition, batch.data

    def stream() -> Iterator[tuple[str, int, bytes]]:
        for first in range(0, records, CHUNK):
            count = min(CHUNK, records - first)
            chosen = keys.take(pa.array(random.integers(0, KEYS, count)))
            yield from rows(count, chosen, start_ms + np.arange(first, first + count) // RECORDS_PER_MS, INPUT)

    client.produce_many(rows(KEYS, keys, np.full(KEYS, start_ms - 60_000), TABLE))
    client.produce_many(stream())


def inputs(workload: str) -> list[TopicPartition]:
    topics = (INPUT, TABLE) if workload == "join" else (INPUT,)
    return [(topic, partition) for topic in topics for partition in range(PARTITIONS)]


def run(subject: str, workload: str, client: Client, bootstrap: str, records: int, timeout_s: float) -> Measured:
    made = f"{subject}-{workload}-{uuid.uuid4().hex[:8]}"
    output = f"{made}-out"
    with tempfile.TemporaryDirectory(prefix="suiro-bench-state-") as state:

        def command(ready: str) -> list[str]:
            arguments = [workload, bootstrap, made, INPUT, TABLE, output, ready]
            if subject == "suiro":
                return [sys.executable, str(Path(__file__).parent / "streams_app.py"), *arguments]
            return kafka_streams_command(kafka_streams(), [*arguments, state, str(THREADS)], heap=HEAP)

        return application.run(
            command, application=made, client=client, inputs=inputs(workload), outputs=[output],
            partitions=PARTITIONS, check=lambda: check(client, workload, output, records), timeout_s=timeout_s,
        )  # fmt: skip


def check(client: Client, workload: str, output: str, records: int) -> None:
    """A map and a join give one record for each of the input; the last counts of all keys add up to the input."""
    found = sum(_of_partition(client, workload, (output, number)) for number in range(PARTITIONS))
    if found != records:
        raise Failed(f"{output}: {found:,} records counted or written, and {records:,} were read")


def _of_partition(client: Client, workload: str, place: TopicPartition) -> int:
    end = client.list_offsets({place: -1}, read_committed=True)[place].offset
    at, rows = 0, 0
    counts: list[pa.RecordBatch] = []
    while at < end:
        fetched = client.fetch({place: at}, partition_max_bytes=32 * 1024 * 1024)[place]
        if not fetched.data:
            continue
        decoded = decode(fetched.data, start_offset=at, end_offset=end, aborted=fetched.aborted)
        at = decoded.next_offset
        rows += decoded.batch.num_rows
        if workload in ("count", "windowed"):
            counts.append(decoded.batch.select(["key", "value"]))
    if not rows or workload in ("map", "join"):
        return rows
    table = pa.Table.from_batches(counts)
    indices = table["key"].combine_chunks().dictionary_encode().indices.to_numpy()
    values = np.frombuffer(b"".join(table["value"].to_pylist()), dtype=">i8")
    last = np.zeros(indices.max() + 1, dtype=np.int64)
    last[indices] = values  # of a repeated index the last value stays
    return int(last.sum())


def show(title: str, records: int, figures: dict[str, dict[str, list[Measured]]]) -> None:
    table = Table(title=title)
    table.add_column("work")
    for column in (
        "suiro rec/s", "Kafka Streams rec/s", "ratio", "target", "met",
        "with start: suiro", "Kafka Streams", "ratio", "MiB: suiro", "Kafka Streams", "ratio",
    ):  # fmt: skip
        table.add_column(column, justify="right")

    def pair(ours: list[float], theirs: list[float]) -> list[str]:
        told = [figure(median(side)) if side else "-" for side in (ours, theirs)]
        return [*told, f"{median(ours) / median(theirs):.2f}" if ours and theirs else "-"]

    for workload, sides in figures.items():
        ours, theirs = sides["suiro"], sides["kafka-streams"]
        rates = [[records / run.seconds for run in side] for side in (ours, theirs)]
        whole = [[records / run.seconds_with_start for run in side] for side in (ours, theirs)]
        memory = [[run.memory_mib for run in side] for side in (ours, theirs)]
        target = TARGETS[workload]
        met = "-"
        if ours and theirs:
            met = "yes" if median(rates[0]) / median(rates[1]) >= target else "no"
        table.add_row(
            f"{workload}, exactly once", *pair(rates[0], rates[1]), f">= {target:g}", met,
            *pair(whole[0], whole[1]), *pair(memory[0], memory[1]),
        )  # fmt: skip
    Console(width=170).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--workloads", default=",".join(TARGETS), help="some of map,count,windowed,join")
    parser.add_argument("--broker", choices=("kafka", "node"), default="kafka", help="what both work on")
    parser.add_argument("--only", choices=SUBJECTS, help="one side alone; no ratio then")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one run may take")
    arguments = parser.parse_args()
    workloads = arguments.workloads.split(",")
    if unknown := set(workloads) - set(TARGETS):
        parser.error(f"unknown workloads: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")

    subjects = [arguments.only] if arguments.only else list(SUBJECTS)
    figures: dict[str, dict[str, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    failures = []
    with tempfile.TemporaryDirectory(prefix="suiro-bench-log-") as directory:
        data = Path(directory) / "log"
        broker: KafkaProcess | NodeProcess = (
            KafkaProcess.start(data) if arguments.broker == "kafka" else NodeProcess.start(data=data)
        )
        try:
            with Client(broker.bootstrap_servers) as client:
                started = time.monotonic()
                fill(client, arguments.records)
            rate = arguments.records / (time.monotonic() - started)
            print(f"filled the input: {rate:,.0f} records/s", file=sys.stderr)
            for _ in range(arguments.rounds):
                for workload in workloads:
                    for subject in list(subjects):
                        try:
                            with Client(broker.bootstrap_servers) as client:
                                measured = run(
                                    subject, workload, client, broker.bootstrap_servers,
                                    arguments.records, arguments.timeout,
                                )  # fmt: skip
                        except Unavailable as error:
                            print(error, file=sys.stderr)
                            subjects.remove(subject)
                            continue
                        except Failed as error:
                            print(error, file=sys.stderr)
                            failures.append(f"{subject} {workload}")
                            continue
                        rate = arguments.records / measured.seconds
                        print(
                            f"{subject} {workload}: {rate:,.0f} records/s, {measured.seconds:.1f} s "
                            f"({measured.seconds_with_start:.1f} with start), {measured.memory_mib:,.0f} MiB",
                            file=sys.stderr,
                        )
                        figures[workload][subject].append(measured)
        finally:
            broker.stop()
    show(
        f"streams on {arguments.broker}, {arguments.rounds} rounds, {arguments.records:,} records of 80 B",
        arguments.records,
        figures,
    )
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(load.run(main))
