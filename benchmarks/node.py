"""The node beside Apache Kafka: start, memory, produce, fetch, CPU for the same work.

    python benchmarks/node.py [--rounds 3] [--records 2000000] [--only suiro|kafka]

Both brokers run one after the other in each round, with the same clients (Kafka's ProducerPerformance, a
franz-go consumer), 4 partitions. Printed are medians over the rounds and their ratio. The node runs from bytecode,
as an installed package does.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import load
from peers import CACHE, consume, consumer, cost, produce
from table import Row, show

from suiro.client import Client, NewTopic
from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess

# The same bytes for both record sizes, so that a round costs the same time.
SIZES = {100: 1.0, 1000: 0.15}


def one_round(subject: str, directory: Path, *, records: int, binary: Path) -> dict[str, float]:
    """Every figure of one broker, started fresh."""
    measured: dict[str, float] = {}
    broker: KafkaProcess | NodeProcess
    if subject == "kafka":
        broker = KafkaProcess.start(directory)  # this formats its folder first, which is not counted as a start
        broker.stop()
        started = time.monotonic()
        broker.restart()
    else:
        started = time.monotonic()
        broker = NodeProcess.start(data=directory)
    measured["start"] = time.monotonic() - started
    try:
        measured["memory at start"] = cost(broker.pid).rss_mib
        with Client(broker.bootstrap_servers) as client:
            client.create_topics([NewTopic(name=f"bench-{size}", partitions=4) for size in SIZES])
        before = cost(broker.pid).cpu_seconds
        for size, share in SIZES.items():
            count = int(records * share)
            produce(broker.bootstrap_servers, f"bench-{size}", records=count // 4, record_bytes=size)  # warm
            measured[f"produce {size} B"] = produce(
                broker.bootstrap_servers, f"bench-{size}", records=count, record_bytes=size
            )
        measured["CPU to take it"] = cost(broker.pid).cpu_seconds - before
        before = cost(broker.pid).cpu_seconds
        for size, share in SIZES.items():
            count = int(records * share) + int(records * share) // 4
            rates = [consume(binary, broker.bootstrap_servers, f"bench-{size}", records=count) for _ in range(3)]
            measured[f"fetch {size} B"] = sorted(rates)[1]
        measured["CPU to give it three times"] = cost(broker.pid).cpu_seconds - before
        measured["memory after load"] = cost(broker.pid).rss_mib
    finally:
        broker.stop()
    return measured


START_LIMIT_S = 0.5
TARGETS = {
    "start": ("s", 0.25),
    "memory at start": ("MiB", 0.2),
    "memory after load": ("MiB", 0.2),
    "CPU to take it": ("s", 0.7),
    "CPU to give it three times": ("s", 0.7),
    "produce 100 B": ("records/s", 1.15),
    "produce 1000 B": ("records/s", 1.0),
    "fetch 100 B": ("records/s", 0.95),
    "fetch 1000 B": ("records/s", 0.95),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=2_000_000, help="records of 100 B; of 1 KB 15 %% of it")
    parser.add_argument("--only", choices=("suiro", "kafka"), help="for profiling: the ratio is then 1")
    arguments = parser.parse_args()

    binary = consumer()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(CACHE / "bytecode")
    NodeProcess.start().stop()
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(arguments.rounds):
        for subject in (arguments.only,) if arguments.only else ("suiro", "kafka"):
            with tempfile.TemporaryDirectory(prefix="suiro-bench-") as directory:
                for name, value in one_round(
                    subject, Path(directory) / "data", records=arguments.records, binary=binary
                ).items():
                    figures[name][subject].append(value)
    show(
        f"the node, {arguments.rounds} rounds, {arguments.records:,} records of 100 B",
        [
            Row(
                work=name,
                unit=unit,
                peer="Apache Kafka 4.3.1",
                ours=tuple(figures[name]["suiro"] or figures[name]["kafka"]),
                theirs=tuple(figures[name]["kafka"] or figures[name]["suiro"]),
                target=target,
                less_is_better=target < 0.95,
            )
            for name, (unit, target) in TARGETS.items()
        ]
        + [
            Row(
                work="start, alone",
                unit="s",
                peer="the limit",
                ours=tuple(figures["start"]["suiro"] or figures["start"]["kafka"]),
                theirs=(START_LIMIT_S,),
                target=1.0,
                less_is_better=True,
            )
        ],
    )


if __name__ == "__main__":
    sys.exit(load.run(main))
