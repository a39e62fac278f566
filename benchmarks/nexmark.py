"""The queries of Nexmark: plain Python functions and expressions on suiro.streams, beside Kafka Streams with Jackson,
and q0 to q3 beside PySpark with Python UDFs.

    python benchmarks/nexmark.py [--rounds 3] [--events 1000000] [--queries q0,q4] [--only functions,kafka-streams]
                                 [--broker kafka|node]

The events come from a seed (`nexmark_events.py`). Every side runs a query in a process of its own, one side after the
other in each round, on the same broker and topics, exactly once: Kafka Streams 4.3.1 with 2 threads, exactly once v2
and a heap of 1 GB (`kafka_streams/NexmarkPeer.java`), suiro with its defaults (`nexmark_queries.py`); PySpark with
Spark's own Kafka connector, at least once (`nexmark_pyspark.py`). How time and memory are taken is in `application.py`.

Each output is read back (read_committed) and compared with a batch answer, SQL over the same events by DuckDB
(`nexmark_answers.py`). With `--cuts` suiro runs each query twice more, with micro-batches of other sizes, and the final
rows must be the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from math import exp, log
from pathlib import Path
from statistics import median

import application
import load
import nexmark_events
from application import Failed, Measured
from nexmark_answers import Answers, final_rows
from nexmark_pyspark import QUERIES as PYSPARK
from nexmark_queries import EXPRESSIONS, FUNCTIONS
from peers import Unavailable, connector_jars, kafka_streams, kafka_streams_command
from rich.console import Console
from rich.table import Table
from table import figure

from suiro.client import Client
from suiro.foundation.types import TopicPartition
from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess
from suiro.protocol.columnar import decode

SIDES = ("kafka-streams", "pyspark", "functions", "expressions")
RATIOS = (
    ("functions", "kafka-streams", 0.8),
    ("expressions", "kafka-streams", 2.0),
    ("functions", "pyspark", 3.0),
)
"""Geometric means of these sides against these, and their targets."""
WRITTEN = {"expressions": EXPRESSIONS, "pyspark": PYSPARK}
"""The queries of a side that has not all of them."""
THREADS = 2
HEAP = "1g"
CUTS = (10_000, 70_000)
"""Records of a micro-batch at most, where the answers of two cuts are compared."""
READ_BYTES = 32 * 1024 * 1024
SOURCES = {
    "q3": ("auction", "person"),
    "q4": ("bid", "auction"),
    "q8": ("auction", "person"),
    "q9": ("bid", "auction"),
    "q20": ("bid", "auction"),
}
"""Where a query reads more than bids. A global table is not among a group's committed offsets."""


def sources(query: str) -> list[TopicPartition]:
    topics = SOURCES.get(query, ("bid",))
    return [(topic, partition) for topic in topics for partition in range(nexmark_events.PARTITIONS)]


class Nexmark:
    """A filled broker, and the answers that every side must give on it."""

    def __init__(self, client: Client, bootstrap: str, *, events: int, timeout_s: float) -> None:
        made = list(nexmark_events.events(events))
        self.counts = Counter(event.topic for event in made)
        nexmark_events.fill(client, made)
        self._answers = Answers(made)
        self._client, self._bootstrap, self._timeout_s = client, bootstrap, timeout_s

    def records(self, query: str) -> int:
        return sum(self.counts[topic] for topic in SOURCES.get(query, ("bid",)))

    def run(self, query: str, side: str, *, cut: int | None = None) -> tuple[Measured, Counter[bytes]]:
        """What was measured, and the final rows as bytes. Raises `Failed` where they are not the answer."""
        made = f"{side}-{query}-{uuid.uuid4().hex[:8]}"
        output = f"{made}-out"
        found: Counter[bytes] = Counter()
        with tempfile.TemporaryDirectory(prefix="suiro-bench-state-") as state:

            def command(ready: str) -> list[str]:
                if side == "kafka-streams":
                    arguments = [query, self._bootstrap, made, output, ready, state, str(THREADS)]
                    return kafka_streams_command(kafka_streams(), arguments, heap=HEAP, peer="NexmarkPeer")
                folder = Path(__file__).parent
                if side == "pyspark":
                    connector_jars()  # says what is missing, before anything starts
                    arguments = [query, self._bootstrap, made, output, ready, state, str(THREADS)]
                    return [sys.executable, str(folder / "nexmark_pyspark.py"), *arguments]
                app = folder / "nexmark_queries.py"
                arguments = [query, side, self._bootstrap, made, output, ready]
                return [sys.executable, str(app), *arguments, *([] if cut is None else [str(cut)])]

            measured = application.run(
                command, application=made, client=self._client, inputs=sources(query), outputs=[output],
                partitions=nexmark_events.PARTITIONS, configs=nexmark_events.KEPT,
                check=lambda: found.update(self._checked(query, output)), timeout_s=self._timeout_s,
            )  # fmt: skip
        return measured, found

    def _checked(self, query: str, output: str) -> Counter[bytes]:
        records = [
            record for partition in range(nexmark_events.PARTITIONS) for record in self._read((output, partition))
        ]
        got, wanted = final_rows(query, records, json.loads), self._answers.of(query)
        if got != wanted:
            extra, missing = got - wanted, wanted - got
            raise Failed(
                f"{output}: {extra.total():,} rows that SQL does not give, such as {min(extra, default=None)}; "
                f"{missing.total():,} rows are missing, such as {min(missing, default=None)}"
            )
        return Counter(value or b"" for value in dict(records).values())

    def _read(self, place: TopicPartition) -> list[tuple[bytes | None, bytes | None]]:
        end = self._client.list_offsets({place: -1}, read_committed=True)[place].offset
        offset, rows = 0, []
        while offset < end:
            fetched = self._client.fetch({place: offset}, partition_max_bytes=READ_BYTES)[place]
            if not fetched.data:
                continue
            decoded = decode(fetched.data, start_offset=offset, end_offset=end, aborted=fetched.aborted)
            offset = decoded.next_offset
            columns = (decoded.batch["key"].to_pylist(), decoded.batch["value"].to_pylist())
            rows += zip(*columns, strict=True)
        return rows


def show(title: str, nexmark: Nexmark, figures: dict[str, dict[str, list[Measured]]]) -> None:
    table = Table(title=title)
    table.add_column("query")
    for column in (
        "Kafka Streams rec/s", "PySpark rec/s", "functions rec/s", "to Kafka Streams", "to PySpark",
        "expressions rec/s", "to Kafka Streams", "CPU us a record: Kafka Streams", "PySpark", "functions",
        "expressions", "PSS MiB: Kafka Streams", "PySpark", "functions",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    for query, sides in figures.items():
        records = nexmark.records(query)
        rates = {side: median(records / run.seconds for run in runs) for side, runs in sides.items() if runs}
        for side, peer, _ in RATIOS:
            if side in rates and peer in rates:
                ratios[side, peer].append(rates[side] / rates[peer])

        def rate(side: str, rates: Mapping[str, float] = rates) -> str:
            return figure(rates[side]) if side in rates else "-"

        def ratio(side: str, peer: str, rates: Mapping[str, float] = rates) -> str:
            return f"{rates[side] / rates[peer]:.2f}" if side in rates and peer in rates else "-"

        def cost(side: str, of: Callable[[Measured], float], sides: Mapping[str, list[Measured]] = sides) -> str:
            return figure(median(map(of, runs))) if (runs := sides.get(side)) else "-"

        table.add_row(
            query, rate("kafka-streams"), rate("pyspark"), rate("functions"),
            ratio("functions", "kafka-streams"), ratio("functions", "pyspark"),
            rate("expressions"), ratio("expressions", "kafka-streams"),
            *(cost(side, lambda run, records=records: run.cpu_s / records * 1e6) for side in SIDES),
            *(cost(side, lambda run: run.pss_mib) for side in SIDES if side != "expressions"),
        )  # fmt: skip
    Console(width=170).print(table)
    for side, peer, target in RATIOS:
        if found := ratios.get((side, peer)):
            mean = exp(sum(map(log, found)) / len(found))
            print(
                f"{side} to {peer}: geometric mean of {len(found)} queries {mean:.2f}, the lowest {min(found):.2f} "
                f"(target: {target:g})"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--queries", default=",".join(FUNCTIONS), help="some of q0 to q22")
    parser.add_argument("--only", default=",".join(SIDES), help=f"some of {','.join(SIDES)}")
    parser.add_argument("--broker", choices=("kafka", "node"), default="kafka", help="what all work on")
    parser.add_argument("--cuts", action="store_true", help="the same bytes for two cuts of the log, as well")
    parser.add_argument("--timeout", type=float, default=900, help="seconds that one run may take")
    arguments = parser.parse_args()
    queries, sides = arguments.queries.split(","), arguments.only.split(",")
    if unknown := (set(queries) - set(FUNCTIONS)) | (set(sides) - set(SIDES)):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join([*FUNCTIONS, *SIDES])}")

    figures: dict[str, dict[str, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    failures = []
    with tempfile.TemporaryDirectory(prefix="suiro-bench-log-") as directory:
        data = Path(directory) / "log"
        broker: KafkaProcess | NodeProcess = (
            KafkaProcess.start(data) if arguments.broker == "kafka" else NodeProcess.start(data=data)
        )
        try:
            with Client(broker.bootstrap_servers) as client:
                nexmark = Nexmark(
                    client, broker.bootstrap_servers, events=arguments.events, timeout_s=arguments.timeout
                )
                print(f"filled: {dict(nexmark.counts)}", file=sys.stderr)
                for _ in range(arguments.rounds):
                    for query in queries:
                        for side in sides:
                            if query not in WRITTEN.get(side, FUNCTIONS):
                                continue
                            began = time.monotonic()
                            try:
                                measured, _found = nexmark.run(query, side)
                            except Unavailable as error:
                                print(error, file=sys.stderr)
                                continue
                            except Failed as error:
                                print(error, file=sys.stderr)
                                failures.append(f"{side} {query}")
                                continue
                            figures[query][side].append(measured)
                            print(
                                f"{side} {query}: {nexmark.records(query) / measured.seconds:,.0f} records/s, "
                                f"{measured.seconds:.1f} s ({measured.seconds_with_start:.1f} with start, "
                                f"{time.monotonic() - began:.1f} with the check), CPU {measured.cpu_s:.1f} s, "
                                f"{measured.pss_mib:,.0f} MiB PSS, {measured.memory_mib:,.0f} peaks",
                                file=sys.stderr,
                            )
                if arguments.cuts:
                    failures += compare_cuts(nexmark, queries)
        finally:
            broker.stop()
    show(
        f"Nexmark on {arguments.broker}, {arguments.rounds} rounds, {arguments.events:,} events",
        nexmark,
        figures,
    )
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


def compare_cuts(nexmark: Nexmark, queries: list[str]) -> list[str]:
    """Which queries wrote other final rows where their micro-batches were of another size."""
    failures = []
    for query in queries:
        try:
            one, other = (nexmark.run(query, "functions", cut=cut)[1] for cut in CUTS)
        except Failed as error:
            print(error, file=sys.stderr)
            failures.append(f"cuts {query}")
            continue
        print(
            f"cuts {query}: {one.total():,} rows, {'the same' if one == other else 'DIFFERENT'}",
            file=sys.stderr,
        )
        if one != other:
            failures.append(f"cuts {query}")
    return failures


if __name__ == "__main__":
    sys.exit(load.run(main))
