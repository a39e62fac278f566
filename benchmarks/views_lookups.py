"""Look-ups of a view while its next version is built from offset 0: how long they take, and whether any fails.

    python benchmarks/views_lookups.py [--rate 1000] [--seconds 20] [--records 2000000] [--keys 100000] [--read-cpus 1]

A node, a host of views (`suiro view serve`) and one view, all in processes of their own. The view counts and adds up
by key; version 1 is built and read alone, then version 2 is deployed and read beside for as long as it is built, then
both are up and read. While it reads, the producer goes on at 1,000 records/s, so that version 1 never stands still.

The reader, vegeta, sends its requests at fixed times, whether answers came or not (an open loop: a server that stops
for a second is not asked less), each for a key drawn at random over HTTP connections that are kept. Time counts from
the moment a request was due until its answer was read. A key that is not found, or any status but 200, is an error.
With `--read-cpus` the host keeps so many CPUs for its answers. The reader is on them, too; the node and the producer
are not: what answers wait for them would be measured as if the host took it.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import load
import numpy as np
import pyarrow as pa
from peers import http_load
from rich.console import Console
from rich.table import Table

from suiro.client import Client, NewTopic
from suiro.errors import SuiroError
from suiro.node import NodeProcess
from suiro.protocol.columnar import encode, partitions_of
from suiro.views.serving.client import Views

PARTITIONS = 4
TARGET_P99_MS = 5.0
LIVE_RATE = 1_000
BATCH_BYTES = 128 * 1024
CHUNK = 250_000
TARGETS = 20_000
START_TIMEOUT_S = 120
BUILD_TIMEOUT_S = 900

APP = """
from suiro.streams import aggregate, col, record_value, serdes, struct
from suiro.views import view


@view("lookups", key="client")
def lookups(builder):
    stream = builder.stream("in", key=serdes.string, value=serdes.json)
    return stream.group_by_key().aggregate(
        lambda: {"records": 0, "total": 0},
        struct(records=aggregate()["records"] + {step}, total=aggregate()["total"] + col("amount")),
    )
"""


@dataclass(slots=True)
class Measured:
    phase: str
    milliseconds: list[float] = field(default_factory=list)
    errors: int = 0
    seconds: float = 0.0

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.milliseconds, share)) if self.milliseconds else float("nan")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=1_000, help="reads a second")
    parser.add_argument("--seconds", type=float, default=20, help="of the phases without a rebuild")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--read-cpus", type=int, default=default_read_cpus(), help="of the host; 0: shared with all")
    asked = parser.parse_args()
    http_load()  # compiled before anything is measured
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        everywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, apart(asked.read_cpus)[0])
        log = NodeProcess.start(data=folder / "log", listen="127.0.0.1:0")
        os.sched_setaffinity(0, everywhere)
        try:
            return run(asked, folder, log.bootstrap_servers)
        finally:
            log.stop()


def default_read_cpus() -> int:
    return 1 if len(os.sched_getaffinity(0)) > 1 else 0


def apart(read_cpus: int) -> tuple[set[int], set[int]]:
    """The CPUs of all others, and those for reads."""
    cpus = sorted(os.sched_getaffinity(0))
    return set(cpus[: len(cpus) - read_cpus]), set(cpus[len(cpus) - read_cpus :])


def run(asked: argparse.Namespace, folder: Path, bootstrap: str) -> int:
    with Client(bootstrap) as client:
        client.create_topics([NewTopic("in", PARTITIONS)])
        fill(client, asked.records, asked.keys)
    host, url = start_host(folder, bootstrap, asked.read_cpus)
    producer = multiprocessing.get_context("spawn").Process(
        target=produce_on, args=(bootstrap, asked.keys, asked.read_cpus), daemon=True
    )
    try:
        with Views(url) as views:
            begun = time.monotonic()
            deploy(views, folder, step=1)
            views.wait_until_built("lookups", 1, timeout_s=BUILD_TIMEOUT_S)
            print(f"version 1 is built: {time.monotonic() - begun:.1f} s", file=sys.stderr)
            producer.start()
            phases = [read(asked, url, "version 1 alone", lasting(asked.seconds))]
            begun = time.monotonic()
            deploy(views, folder, step=2)
            is_built = built(views, 2)
            phases.append(read(asked, url, "while version 2 is built", is_built))
            print(f"version 2 is built: {time.monotonic() - begun:.1f} s", file=sys.stderr)
            phases.append(read(asked, url, "both versions up", lasting(asked.seconds)))
    except SuiroError:
        for path in sorted(folder.rglob("views/**/*.log")):
            print(f"{path.name}:\n{path.read_text(errors='replace')[-3_000:]}", file=sys.stderr)
        raise
    finally:
        if producer.pid is not None:
            producer.kill()
            producer.join()
        host.terminate()
        host.wait()
    return show(asked, phases)


# -- the view -----------------------------------------------------------------------------------------


def fill(client: Client, records: int, keys: int) -> None:
    for first in range(0, records, CHUNK):
        count = min(CHUNK, records - first)
        client.produce_many(("in", batch.partition, batch.data) for batch in batches(count, keys, first))


def batches(count: int, keys: int, seed: int) -> list[object]:
    """Every key is there from the beginning on: the first `keys` records are one of each."""
    drawn = np.random.default_rng(seed)
    numbers = drawn.integers(0, keys, count) if seed or count < keys else np.arange(count) % keys
    names = pa.array([f"client-{number}" for number in numbers.tolist()])
    values = pa.array([b'{"amount":%d}' % number for number in drawn.integers(0, 1_000, count).tolist()])
    now_ms = int(time.time() * 1000)
    return encode(
        keys=names.cast(pa.binary()), values=values, timestamps=np.full(count, now_ms),
        partitions=partitions_of(names.cast(pa.binary()), PARTITIONS), num_partitions=PARTITIONS,
        max_batch_bytes=BATCH_BYTES,
    )  # fmt: skip


def produce_on(bootstrap: str, keys: int, read_cpus: int) -> None:
    os.sched_setaffinity(0, apart(read_cpus)[0])
    with Client(bootstrap) as client:
        seed = 1
        while True:
            time.sleep(0.1)
            seed += 1
            made = batches(LIVE_RATE // 10, keys, -seed % 2**32)
            client.produce_many(("in", batch.partition, batch.data) for batch in made)


def start_host(folder: Path, bootstrap: str, read_cpus: int) -> tuple[subprocess.Popen[bytes], str]:
    command = [
        sys.executable, "-m", "suiro", "view", "serve", "--bootstrap-servers", bootstrap,
        "--data", str(folder / "views"), "--listen", "127.0.0.1:0", "--read-cpus", str(read_cpus),
    ]  # fmt: skip
    with (folder / "host.log").open("wb") as errors:
        host = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=os.environ)
    assert host.stdout is not None
    line = host.stdout.readline()
    if not line:
        sys.exit(f"the host did not start:\n{(folder / 'host.log').read_text()[-2_000:]}")
    return host, json.loads(line)["url"]


def deploy(views: Views, folder: Path, *, step: int) -> None:
    app = folder / "lookups_app.py"
    app.write_text(APP.replace("{step}", str(step)))
    views.deploy(f"{app}:lookups")


# -- the reader ---------------------------------------------------------------------------------------


def lasting(seconds: float) -> Callable[[], bool]:
    ends = time.monotonic() + seconds
    return lambda: time.monotonic() > ends


def built(views: Views, version: int) -> Callable[[], bool]:
    """Asked on a thread of its own, so that the reader does not wait for the answer."""
    done = threading.Event()

    def wait() -> None:
        views.wait_until_built("lookups", version, timeout_s=BUILD_TIMEOUT_S)
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    ends = time.monotonic() + BUILD_TIMEOUT_S
    return lambda: done.is_set() or time.monotonic() > ends


def read(asked: argparse.Namespace, url: str, phase: str, is_over: Callable[[], bool]) -> Measured:
    measured = Measured(phase)
    with tempfile.TemporaryDirectory() as made:
        targets, answers = Path(made) / "targets", Path(made) / "answers"
        keys = [f"client-{random.randrange(asked.keys)}" for _ in range(TARGETS)]
        targets.write_text("".join(f"GET {url}/views/lookups/rows/{key}\nSuiro-Caller: {key}\n\n" for key in keys))
        begun = time.monotonic()
        cpus = ",".join(map(str, sorted(apart(asked.read_cpus)[1])))
        attack = subprocess.Popen(
            [
                *(["taskset", "-c", cpus] if cpus else []),
                str(http_load()), "attack", "-duration", "0", "-rate", str(asked.rate), "-targets", str(targets),
                "-workers", str(asked.connections), "-connections", str(asked.connections), "-output", str(answers),
            ]
        )  # fmt: skip
        try:
            while not is_over():
                time.sleep(0.05)
        finally:
            attack.send_signal(signal.SIGINT)  # it waits for what is under way
            attack.wait()
        measured.seconds = time.monotonic() - begun
        _count(asked.rate, answers, measured)
    print(
        f"{phase}: {len(measured.milliseconds):,} reads, {measured.errors} errors, "
        f"p99 {measured.quantile(0.99):.2f} ms",
        file=sys.stderr,
    )
    return measured


def _count(rate: int, answers: Path, measured: Measured) -> None:
    encoded = subprocess.run(
        [str(http_load()), "encode", "--to", "csv", str(answers)], check=True, capture_output=True, text=True
    )
    found = list(csv.reader(encoded.stdout.splitlines()))  # without a head; bodies are base64
    sent = [int(line[0]) / 1e6 for line in found]  # ms
    due = [int(line[8]) * 1000 / rate for line in found]
    first = min(map(float.__sub__, sent, due))  # the one that was sent in time
    for line, sent_at, due_at in zip(found, sent, due, strict=True):
        _, status, nanoseconds, _, _, error, body, *_ = line
        text = base64.b64decode(body)
        if status != "200" or not text.startswith(b'{"view"') or text.endswith(b'"row":null}'):
            if not measured.errors:
                print(f"{measured.phase}: the first error: {status} {error} {text!r:.300}", file=sys.stderr)
            measured.errors += 1
        else:
            measured.milliseconds.append(sent_at - due_at - first + int(nanoseconds) / 1e6)


def show(asked: argparse.Namespace, phases: list[Measured]) -> int:
    table = Table(
        title=f"look-ups over HTTP, {asked.rate:,} asked a second, {asked.records:,} records, {asked.keys:,} rows, "
        f"{asked.read_cpus} of {len(os.sched_getaffinity(0))} CPUs for reads"
    )
    for column in (
        "phase",
        "seconds",
        "reads/s",
        "errors",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "longest ms",
        "target",
        "met",
    ):
        table.add_column(column, justify="left" if column == "phase" else "right")
    failed = False
    for phase in phases:
        met = phase.quantile(0.99) < TARGET_P99_MS and not phase.errors
        failed |= not met
        table.add_row(
            phase.phase, f"{phase.seconds:.0f}", f"{len(phase.milliseconds) / phase.seconds:,.0f}", str(phase.errors),
            *(f"{phase.quantile(share):.2f}" for share in (0.5, 0.99, 0.999, 1.0)),
            f"p99 < {TARGET_P99_MS:g}", "yes" if met else "no",
        )  # fmt: skip
    Console(width=150).print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(load.run(main))
