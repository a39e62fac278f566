"""Calls of a service that takes 100 ms for each, from a topology with one partition: one process makes them.

    python benchmarks/async_calls.py [--rounds 3] [--records 30000] [--ms 100] [--concurrency 200]

The limit of what can be had is concurrency / ms. Keys are 10,000, and calls of one key run one after the other. How
time is taken is in `application.py`; the output is read back (read_committed), and has every record once.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from statistics import median

import application
import load
from application import Failed, Measured
from rich.console import Console
from rich.table import Table
from table import figure

from suiro.client import LATEST, Client, NewTopic
from suiro.node import NodeProcess
from suiro.protocol.columnar import decode
from suiro.protocol.records import Record, encode_batch

TARGET = 1_000.0  # records a second
KEYS = 10_000
BATCH = 1_000
APP = str(Path(__file__).parent / "async_calls_app.py")


def fill(client: Client, records: int) -> None:
    client.create_topics([NewTopic("in", 1)])
    for first in range(0, records, BATCH):
        batch = [
            Record(offset=at, timestamp=n, key=f"key-{n * 7919 % KEYS}".encode(), value=str(n).encode())
            for at, n in enumerate(range(first, min(records, first + BATCH)))
        ]
        client.produce({("in", 0): encode_batch(batch)})


def check(client: Client, output: str, records: int) -> None:
    place, at, found = (output, 0), 0, 0
    end = client.list_offsets({place: LATEST}, read_committed=True)[place].offset
    while at < end:
        fetched = client.fetch({place: at})[place]
        decoded = decode(fetched.data, start_offset=at, end_offset=end, aborted=fetched.aborted)
        at = decoded.next_offset
        for value in decoded.batch.column("value").to_pylist():
            if int(value) != found:
                raise Failed(f"record {found:,} of {output} is {value!r}")
            found += 1
    if found != records:
        raise Failed(f"{output}: {found:,} records were written, and {records:,} were read")


def run(client: Client, bootstrap: str, asked: argparse.Namespace, port: int) -> Measured:
    name = f"calls-{uuid.uuid4().hex[:8]}"
    arguments = [bootstrap, name, "in", f"{name}-out", str(asked.concurrency), str(port)]
    return application.run(
        lambda ready: [sys.executable, APP, "run", *arguments, ready],
        application=name,
        client=client,
        inputs=[("in", 0)],
        outputs=[f"{name}-out"],
        partitions=1,
        check=lambda: check(client, f"{name}-out", asked.records),
        timeout_s=asked.timeout,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--ms", type=int, default=100, help="what a call takes")
    parser.add_argument("--concurrency", type=int, default=200)
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one run may take")
    asked = parser.parse_args()
    found: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="suiro-bench-log-") as directory:
        node = NodeProcess.start(data=Path(directory))
        service = subprocess.Popen([sys.executable, APP, "service", str(asked.ms)], stdout=subprocess.PIPE, text=True)
        try:
            assert service.stdout is not None
            port = int(service.stdout.readline())
            with Client(node.bootstrap_servers) as client:
                fill(client, asked.records)
                found += [run(client, node.bootstrap_servers, asked, port) for _ in range(asked.rounds)]
        finally:
            service.terminate()
            service.wait()
            node.stop()
    rate = median(asked.records / each.seconds for each in found)
    table = Table(title=f"{asked.records:,} calls of {asked.ms} ms, {asked.concurrency} at a time, exactly once")
    for column in ("rec/s", "limit", "target", "met", "CPU s", "MiB"):
        table.add_column(column, justify="right")
    table.add_row(
        figure(rate),
        figure(asked.concurrency * 1000 / asked.ms),
        f">= {TARGET:,.0f}",
        "yes" if rate >= TARGET else "no",
        figure(median(each.cpu_s for each in found)),
        figure(median(each.memory_mib for each in found)),
    )
    Console(width=120).print(table)
    return 0 if rate >= TARGET else 1


if __name__ == "__main__":
    sys.exit(load.run(main))
