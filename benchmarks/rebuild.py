"""Rebuilding a view from offset 0: beside Kafka Streams, and what its reading costs, by bytes sent or by file.

    python benchmarks/rebuild.py [--records 5000000] [--only view|kafka-streams|read] [--timeout 900]

One node, one topic of 4 partitions: that of `streams.py`, 100,000 keys, values of 80 B. Three works, one after the
other:

- read: all records of the topic as columns, as the source does it: by bytes that the node sends, and by file, as it is
  where node and reader are on one machine. No part of a rebuild but its reading.
- view: a version of a view that counts by key, in the process and with the settings that `suiro view deploy` gives it.
- kafka-streams: the same count in Kafka Streams, exactly once, 2 threads, a heap of 1 GB.

Both rebuilds begin without any state and end when all of the input's offsets are committed; then their output is read
back and checked. Time counts from when they say that they run (the ratio), and from their start. The CPU is that of all
their processes from the start on, and the node's meanwhile: on a machine that has other work it is what to trust.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import load
from application import Failed
from peers import Unavailable, kafka_streams, kafka_streams_command, tree
from rich.console import Console
from rich.table import Table
from streams import HEAP, INPUT, PARTITIONS, TABLE, THREADS, check, fill, inputs
from table import figure

from suiro.client import LATEST, Client, NewTopic
from suiro.foundation.types import TopicPartition
from suiro.node import NodeProcess
from suiro.protocol.columnar import decode
from suiro.views.definition import VersionSpec
from suiro.views.pipeline.archive import Code, archive_of, code_id
from suiro.views.pipeline.process import PipelineProcess

SUBJECTS = ("read", "view", "kafka-streams")
SENT, BY_FILE = "read: bytes that the node sends", "read: by file"
TARGET = 2.0
STEP_BYTES = 8 * 1024 * 1024  # what the source fetches at once
LOOK_S = 0.1
ENTRY = "rebuild_app.py:clients"
APP = """
from suiro.streams import serdes
from suiro.views import view


@view("{name}", key="client")
def clients(builder):
    return builder.stream("{topic}", key=serdes.string, value=serdes.string).group_by_key().count()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """`cpu_s`: of the processes that do the work, and of the node."""

    seconds: float
    cpu_s: float
    with_start_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A rebuild in a process of its own. `since`: when it said that it runs, by this machine's clock; None before.
    `failure`: why it is over, None while it goes on."""

    pid: int
    application_id: str
    output: str
    since: Callable[[], float | None]
    failure: Callable[[], str | None]
    stop: Callable[[], object]


# -- reading --------------------------------------------------------------------------------------------


def read(client: Client, ends: Mapping[TopicPartition, int]) -> int:
    rows = 0
    for place, end in ends.items():
        at = 0
        while at < end:
            found = client.fetch({place: at}, max_bytes=STEP_BYTES, partition_max_bytes=STEP_BYTES)[place]
            decoded = decode(found.data, start_offset=at, end_offset=end, aborted=found.aborted, headers=True)
            at, rows = decoded.next_offset, rows + decoded.batch.num_rows
    return rows


def measured_read(read: Callable[[], int], records: int, node: int) -> Cost:
    read()  # once to warm up: pages, compiled code
    used, started = time.process_time() + cpu_seconds({node}), time.monotonic()
    rows = read()
    ended = time.monotonic()
    if rows != records:
        raise Failed(f"{rows:,} records were read of {records:,}")
    return Cost(seconds=ended - started, cpu_s=time.process_time() + cpu_seconds({node}) - used)


def cpu_seconds(pids: set[int]) -> float:
    """Of these processes, and of children of theirs that are gone."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


# -- rebuilding -----------------------------------------------------------------------------------------


def start_view(folder: Path, client: Client, bootstrap: str) -> Running:
    name = f"clients_{uuid.uuid4().hex[:8]}"
    app = folder / ENTRY.partition(":")[0]
    app.write_text(APP.format(name=name, topic=INPUT))
    code = archive_of(app)
    spec = VersionSpec.of(Code(code).load(ENTRY), 1, code=code_id(code), entry=ENTRY)
    process = PipelineProcess.start(spec, code=code, folder=folder / "version", bootstrap_servers=bootstrap)
    said: list[float] = []

    def since() -> float | None:
        if not said and process.status.state in ("running", "ready"):
            said.append(time.time())
        return said[0] if said else None

    return Running(
        pid=process.pid,
        application_id=spec.application_id,
        output=spec.output_topic,
        since=since,
        failure=lambda: process.status.error,
        stop=process.stop,
    )


def start_kafka_streams(folder: Path, client: Client, bootstrap: str) -> Running:
    application = f"kafka-streams-{uuid.uuid4().hex[:8]}"
    output, ready, log_path = f"{application}-out", folder / "ready", folder / "log"
    client.create_topics([NewTopic(output, PARTITIONS)])
    arguments = ["count", bootstrap, application, INPUT, TABLE, output, str(ready), str(folder), str(THREADS)]
    command = kafka_streams_command(kafka_streams(), arguments, heap=HEAP)
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )

    def failure() -> str | None:
        if process.poll() is None:
            return None
        return f"it ended with exit code {process.returncode}: {log_path.read_text(errors='replace')[-2000:]}"

    def stop() -> None:
        process.kill()
        process.wait()

    return Running(
        pid=process.pid,
        application_id=application,
        output=output,
        since=lambda: int(text) / 1000 if ready.exists() and (text := ready.read_text()) else None,
        failure=failure,
        stop=stop,
    )


STARTS = {"view": start_view, "kafka-streams": start_kafka_streams}


def rebuild(subject: str, client: Client, log: NodeProcess, *, records: int, timeout_s: float) -> Cost:
    wanted = inputs("count")
    ends = {place: end.offset for place, end in client.list_offsets(dict.fromkeys(wanted, LATEST)).items()}
    with tempfile.TemporaryDirectory(prefix="suiro-bench-", ignore_cleanup_errors=True) as made:
        node_used, started = cpu_seconds({log.pid}), time.time()
        running = STARTS[subject](Path(made), client, log.bootstrap_servers)
        try:
            while True:
                # Not `require_stable`: it would wait for the transaction under way.
                committed = client.offset_fetch(running.application_id, wanted, require_stable=False)
                since = running.since()
                if all((at := committed.get(place)) and at.offset >= ends[place] for place in wanted):
                    break
                if (failure := running.failure()) is not None:
                    raise Failed(f"{subject}: {failure}")
                if time.time() - started > timeout_s:
                    raise Failed(f"{subject}: not done after {timeout_s:.0f} s, at {committed}")
                time.sleep(LOOK_S)
            ended = time.time()
            used = cpu_seconds(tree(running.pid)) + cpu_seconds({log.pid}) - node_used
        finally:
            running.stop()
    check(client, "count", running.output, records)
    return Cost(seconds=ended - (since or started), cpu_s=used, with_start_s=ended - started)


def told(name: str, cost: Cost) -> Cost:
    print(f"{name}: {cost.seconds:.1f} s, {cost.cpu_s:.2f} s of CPU", file=sys.stderr)
    return cost


# -- the result -----------------------------------------------------------------------------------------


def show(records: int, costs: Mapping[str, Cost]) -> bool:
    table = Table(title=f"rebuild of {records:,} records of 80 B, 100,000 keys, on the node")
    table.add_column("work")
    for column in ("records/s", "with start", "CPU s"):
        table.add_column(column, justify="right")
    for name, cost in costs.items():
        whole = figure(records / cost.with_start_s) if cost.with_start_s else "-"
        table.add_row(name, figure(records / cost.seconds), whole, f"{cost.cpu_s:.2f}")
    console = Console(width=130)
    console.print(table)
    sent, mapped = costs.get(SENT), costs.get(BY_FILE)
    ours, theirs = costs.get("view"), costs.get("kafka-streams")
    met = True
    if sent and mapped:
        ratio = sent.cpu_s / mapped.cpu_s
        line = f"reading by bytes / by file: CPU {ratio:.2f} x {verdict(ratio)}"
        line += f", time {sent.seconds / mapped.seconds:.2f} x"
        if ours:
            line += f"; of the view's rebuild, reading by file is {mapped.cpu_s / ours.cpu_s:.1%}"
        console.print(line)
    if ours and theirs:
        ratio = theirs.seconds / ours.seconds
        met &= ratio >= TARGET
        console.print(
            f"view / Kafka Streams: {ratio:.2f} x {verdict(ratio)}, with start "
            f"{theirs.with_start_s / ours.with_start_s:.2f} x, in CPU {theirs.cpu_s / ours.cpu_s:.2f} x"
        )
    return met


def verdict(ratio: float) -> str:
    return f"(target {TARGET:g}: {'met' if ratio >= TARGET else 'not met'})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--only", choices=SUBJECTS)
    parser.add_argument("--timeout", type=float, default=900, help="seconds that one rebuild may take")
    asked = parser.parse_args()
    subjects = [asked.only] if asked.only else list(SUBJECTS)
    costs: dict[str, Cost] = {}
    failed = False
    with tempfile.TemporaryDirectory(prefix="suiro-bench-log-") as made:
        log = NodeProcess.start(data=Path(made) / "log")
        try:
            with Client(log.bootstrap_servers) as client:
                fill(client, asked.records)
                if "read" in subjects:
                    at_end = client.list_offsets(dict.fromkeys(inputs("count"), LATEST))
                    ends = {place: found.offset for place, found in at_end.items()}
                    for name, by_file in ((SENT, "false"), (BY_FILE, "true")):
                        with Client(log.bootstrap_servers, settings={"fetch.from.files": by_file}) as reader:
                            cost = measured_read(partial(read, reader, ends), asked.records, log.pid)
                        costs[name] = told(name, cost)
                for subject in subjects:
                    if subject in STARTS:
                        try:
                            found = rebuild(subject, client, log, records=asked.records, timeout_s=asked.timeout)
                        except (Unavailable, Failed) as error:
                            print(error, file=sys.stderr)
                            failed |= isinstance(error, Failed)
                        else:
                            costs[subject] = told(subject, found)
        finally:
            log.stop()
    return 0 if show(asked.records, costs) and not failed else 1


if __name__ == "__main__":
    sys.exit(load.run(main))
