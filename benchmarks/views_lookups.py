"""Look-ups of a view while its next version is built from offset 0: how long they take, and whether any fails.

    python benchmarks/views_lookups.py [--rate 1000] [--seconds 20] [--records 2000000] [--keys 100000] [--read-cpus 1]

A node, a host of views (`suiro view serve`) and one view, all in processes of their own. The view counts and adds up
by key; version 1 is built and read alone, then version 2 is deployed and read beside for as long as it is built, then
both are up and read. While it reads, the producer goes on at 1,000 records/s, so that version 1 never stands still.

The reader sends its requests at fixed times, whether answers came or not (an open loop: a server that stops for a
second is not asked less), each for a key drawn at random over HTTP connections that are kept. Time counts from the
moment a request was due until its answer was read. A key that is not found, or any status but 200, is an error.
The producer is a process of its own. With `--read-cpus` the host keeps so many CPUs for its answers; the reader is on
them, too, and the producer is not: what they wait for a CPU would be measured as if the host did.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from suiro.client import Client, NewTopic
from suiro.errors import SuiroError
from suiro.node import NodeProcess
from suiro.protocol.columnar import encode, partitions_of
from suiro.views.client import Views

PARTITIONS = 4
TARGET_P99_MS = 5.0
LIVE_RATE = 1_000
BATCH_BYTES = 128 * 1024
CHUNK = 250_000
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
    parser.add_argument(
        "--read-cpus", type=int, default=default_read_cpus(), help="of the host; 0: shared with all"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        log = NodeProcess.start(data=folder / "log", listen="127.0.0.1:0")
        try:
            return run(asked, folder, log.bootstrap_servers)
        finally:
            log.stop()


def default_read_cpus() -> int:
    return 1 if len(os.sched_getaffinity(0)) > 1 else 0


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
    if read_cpus:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:-read_cpus])
    with Client(bootstrap) as client:
        seed = 1
        while True:
            time.sleep(0.1)
            seed += 1
            made = batches(LIVE_RATE // 10, keys, -seed % 2**32)
            client.produce_many(("in", batch.partition, batch.data) for batch in made)


def start_host(folder: Path, bootstrap: str, read_cpus: int) -> tuple[subprocess.Popen[bytes], str]:
    command = [
        sys.executable, "-m", "suiro.cli", "view", "serve", "--bootstrap-servers", bootstrap,
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
    import uvloop

    measured = Measured(phase)
    begun = time.monotonic()
    everywhere = os.sched_getaffinity(0)
    if asked.read_cpus:
        os.sched_setaffinity(0, sorted(everywhere)[-asked.read_cpus :])
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_read_all(asked, url, measured, is_over))
    finally:
        os.sched_setaffinity(0, everywhere)
    measured.seconds = time.monotonic() - begun
    print(
        f"{phase}: {len(measured.milliseconds):,} reads, {measured.errors} errors, "
        f"p99 {measured.quantile(0.99):.2f} ms",
        file=sys.stderr,
    )
    return measured


async def _read_all(
    asked: argparse.Namespace, url: str, measured: Measured, is_over: Callable[[], bool]
) -> None:
    due: asyncio.Queue[float | None] = asyncio.Queue()
    readers = [asyncio.create_task(_reader(asked, url, measured, due)) for _ in range(asked.connections)]
    at = time.perf_counter()
    while not is_over():
        at += 1 / asked.rate
        if (pause := at - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        due.put_nowait(at)
    for _ in readers:
        due.put_nowait(None)
    await asyncio.gather(*readers)


async def _reader(
    asked: argparse.Namespace, url: str, measured: Measured, due: asyncio.Queue[float | None]
) -> None:
    address = urlsplit(url)
    connection = None
    while (at := await due.get()) is not None:
        key = random.randrange(asked.keys)
        request = (
            f"GET /views/lookups/rows/client-{key} HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"Suiro-Caller: client-{key}\r\n\r\n"
        )
        try:
            if connection is None:
                connection = await asyncio.open_connection(address.hostname, address.port)
            answer = await _ask(*connection, request.encode())
            if not answer.startswith(b'{"view"') or answer.endswith(b'"row":null}'):
                raise ValueError(answer)
        except (OSError, ValueError, EOFError) as error:
            if not measured.errors:
                print(f"{measured.phase}: the first error: {error!r:.500}", file=sys.stderr)
            measured.errors += 1
            if connection is not None:
                with suppress(OSError):
                    connection[1].close()
                connection = None
            continue
        measured.milliseconds.append((time.perf_counter() - at) * 1000)


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise ValueError(head)
    size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(size.partition(b":")[2]))


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
    sys.exit(main())
