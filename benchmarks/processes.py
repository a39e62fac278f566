"""What an application of `suiro run` costs by its processes: its start, while it idles, its memory under load.

    python benchmarks/processes.py start [--rounds 3]        # from the command to the first committed micro-batch
    python benchmarks/processes.py idle [--seconds 30]       # CPU with nothing to do
    python benchmarks/processes.py memory [--records 6000000]  # PSS with micro-batches of 2,000,000 records
    python benchmarks/processes.py steady [--warm-up 120] [--seconds 30]  # CPU of a micro-batch at 2,000 records/s

On a node of its own, a topology with state (`--workload count`) or without (`map`). The phases of a start are what
suiro tells its loggers, from the moment in which the command was given; the CPU beside each is that of the processes of
the application in that time. PSS counts a page that n processes
share as 1/n in each; Java's is told apart by `jcmd`, in a second run with native memory tracking (`--native`).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import application
import load
import streams
from peers import cost, pss_mib, tree
from rich.console import Console
from rich.table import Table

from suiro.client import Client, NewTopic
from suiro.foundation.types import TopicPartition
from suiro.node import NodeProcess

TARGETS = {"start": "7 s", "idle": "3 % of a core", "memory": "1,536 MiB", "steady": "none"}
COMMAND = Path(sys.executable).with_name("suiro")
APP = Path(__file__).with_name("processes_app.py")
FIRST_RECORDS = 1000
LOOK_S = 0.02
RATE = 2_000  # of steady
QUIET_S = 10.0  # after the last micro-batch, until an application is taken to idle
JAVA, DRIVER, SERVER = "Java", "driver", "server of Pythons"
NODE, OTHERS = "node", "others"


@dataclass(frozen=True, slots=True)
class Running:
    """An application that runs; `place` is its input's partitions."""

    process: subprocess.Popen[bytes]
    application_id: str
    began: float
    phases: Path
    log: Path
    client: Client
    node: int
    inputs: tuple[TopicPartition, ...]

    def is_done(self) -> bool:
        """All input is committed."""
        if self.process.poll() is not None:
            raise application.Failed(f"suiro run ended:\n{self.log.read_text()[-3000:]}")
        ends = application._ends(self.client, self.inputs)
        return application._is_done(self.client, self.application_id, ends)


# -- processes ------------------------------------------------------------------------------------------------


def kinds(running: Running) -> dict[int, str]:
    """What each process of it is. Those that are forked have no command line of their own, but a name."""
    found: dict[int, str] = {running.node: NODE}
    for pid in tree(running.process.pid):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        words = b" ".join(line).decode(errors="replace")
        if pid == running.process.pid:
            found[pid] = DRIVER
        elif line[0].endswith(b"java"):
            found[pid] = JAVA
        elif "python_stub" in words:
            found[pid] = "stubs"
        elif name.startswith("py:"):
            found[pid] = _kind_of_fork(pid, name[3:])
        elif "python_server" in words or "fork_server" in words:
            found[pid] = SERVER
        else:
            found[pid] = name
    return found


def _kind_of_fork(pid: int, name: str) -> str:
    if "daemo" not in name:  # a name has 15 bytes at most
        return "planning and other Pythons of the query"
    parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
    return "workers" if Path(f"/proc/{parent}/comm").read_text().startswith("py:") else "daemons of workers"


class Watch:
    """CPU and memory of an application's processes, by kind; those that have ended meanwhile included."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._kinds: dict[int, str] = {}
        self._cpu: dict[int, float] = {}
        self.peak: dict[str, float] = {}

    def cpu(self) -> dict[str, float]:
        """Seconds so far."""
        self._kinds.update(kinds(self._running))
        for pid in self._kinds:
            try:
                self._cpu[pid] = cost(pid).cpu_seconds
            except OSError:
                continue
        told: dict[str, float] = defaultdict(float)
        for pid, seconds in self._cpu.items():
            told[self._kinds[pid]] += seconds
        return told

    def memory(self) -> dict[str, float]:
        """PSS now; `peak` keeps the largest sum's (the node is beside, and in no sum)."""
        told: dict[str, float] = defaultdict(float)
        for pid, kind in kinds(self._running).items():
            told[kind] += pss_mib({pid})
        if _sum(told) > _sum(self.peak):
            self.peak = dict(told)
        return told


def _sum(told: Mapping[str, float]) -> float:
    return sum(value for kind, value in told.items() if kind != NODE)


# -- running --------------------------------------------------------------------------------------------------


@contextmanager
def environment() -> Iterator[tuple[NodeProcess, Client]]:
    with tempfile.TemporaryDirectory(prefix="suiro-bench-log-") as directory:
        node = NodeProcess.start(data=Path(directory) / "log")
        try:
            with Client(node.bootstrap_servers) as client:
                yield node, client
        finally:
            node.stop()


@contextmanager
def run(
    node: NodeProcess, client: Client, workload: str, java: str = "", options: tuple[str, ...] = ()
) -> Iterator[Running]:
    made = f"{workload}-{uuid.uuid4().hex[:8]}"
    client.create_topics([NewTopic(f"{made}-out", streams.PARTITIONS)])
    with tempfile.TemporaryDirectory(prefix="suiro-bench-state-") as work:
        log, phases = Path(work) / "log", Path(work) / "phases"
        given = {"WORKLOAD": workload, "INPUT": streams.INPUT, "OUTPUT": f"{made}-out", "PHASES": str(phases)}
        if java:
            given["JAVA_TOOL_OPTIONS"] = java
        command = [
            str(COMMAND), "run", str(APP), "--application-id", made,
            "--bootstrap-servers", node.bootstrap_servers, "--state-dir", f"{work}/state", *options,
        ]  # fmt: skip
        with log.open("wb") as out:
            began = time.time()
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=work,
                env={**os.environ, **given}, start_new_session=True,
            )  # fmt: skip
        places = tuple((streams.INPUT, number) for number in range(streams.PARTITIONS))
        try:
            yield Running(process, made, began, phases, log, client, node.pid, places)
        finally:
            application.stop(process)
            client.delete_topics([topic for topic in client.metadata() if topic.startswith(made)])


def wait(is_true: Callable[[], bool], within_s: float, look: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + within_s
    while not is_true():
        if time.monotonic() > deadline:
            raise application.Failed(f"not done within {within_s:.0f} s")
        look()
        time.sleep(LOOK_S)


# -- the measurements -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Start:
    """`phases`: what was told, when, and the CPU that each kind of process had used by then."""

    phases: list[tuple[str, float, Mapping[str, float]]] = field(default_factory=list)


def start(node: NodeProcess, client: Client, workload: str) -> Start:
    with run(node, client, workload) as running:
        watch, found = Watch(running), Start()
        told = 0

        def look() -> None:
            nonlocal told
            used = watch.cpu()
            lines = running.phases.read_text().splitlines() if running.phases.exists() else []
            for line in lines[told:]:
                at, _, what = line.partition(" ")
                found.phases.append((what, float(at) - running.began, used))
            told = len(lines)

        wait(running.is_done, 180, look)
        look()
        return found


def idle(node: NodeProcess, client: Client, workload: str, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Per cent of a core of each kind of process, and its PSS."""
    with run(node, client, workload) as running:
        wait(running.is_done, 180)
        time.sleep(QUIET_S)
        watch = Watch(running)
        before, began = watch.cpu(), time.monotonic()
        time.sleep(seconds)
        after, took = watch.cpu(), time.monotonic() - began
        return {kind: 100 * (after[kind] - before.get(kind, 0)) / took for kind in after}, watch.memory()


def steady(
    node: NodeProcess, client: Client, workload: str, warm_up: float, seconds: float
) -> tuple[dict[str, float], int]:
    """Milliseconds of CPU that each kind of process uses for a micro-batch, and how many there were."""
    from latency import Feed

    with run(node, client, workload) as running:
        wait(running.is_done, 180)
        feed = Feed(node.bootstrap_servers, streams.INPUT, RATE)
        feed.start()
        try:
            time.sleep(warm_up)
            watch = Watch(running)
            before, committed = watch.cpu(), _micro_batches(running)
            time.sleep(seconds)
            after, committed = watch.cpu(), _micro_batches(running) - committed
        finally:
            feed.end()
        return {kind: 1000 * (after[kind] - before.get(kind, 0)) / committed for kind in after}, committed


def _micro_batches(running: Running) -> int:
    return running.phases.read_text().count(" is committed\n")


def memory(
    node: NodeProcess, client: Client, workload: str, native: bool
) -> tuple[dict[str, float], dict[str, float], float]:
    """The peak of the PSS of all, by kind; what Java's is; and how long it took."""
    java = "-XX:NativeMemoryTracking=summary" if native else ""
    with run(node, client, workload, java) as running:
        watch = Watch(running)
        parts: dict[str, float] = {}
        looked = 0.0

        def look() -> None:
            nonlocal looked, parts
            if time.monotonic() - looked < 0.5:
                return
            looked = time.monotonic()
            watch.memory()
            if native:
                parts = native_memory(running) or parts

        wait(running.is_done, 900, look)
        return watch.peak, parts, time.time() - running.began


def native_memory(running: Running) -> dict[str, float]:
    """What Java has committed, by its own account, in MiB."""
    java = [pid for pid, kind in kinds(running).items() if kind == JAVA]
    if not java:
        return {}
    done = subprocess.run(
        ["jcmd", str(java[0]), "VM.native_memory", "summary"], capture_output=True, text=True, check=False
    )
    found = re.findall(r"^-\s+(.+?) \(reserved=\d+KB, committed=(\d+)KB", done.stdout, re.MULTILINE)
    return {name: int(kilobytes) / 1024 for name, kilobytes in found}


# -- telling --------------------------------------------------------------------------------------------------


def show_start(rounds: list[Start], workload: str) -> None:
    table = Table(title=f"start of `suiro run` ({workload}), median of {len(rounds)}; target {TARGETS['start']}")
    pythons = (DRIVER, SERVER, OTHERS)
    for column in ("phase", "ends after s", "takes s", "CPU s", JAVA, *pythons):
        table.add_column(column, justify="left" if column == "phase" else "right")
    at, used = 0.0, dict.fromkeys((JAVA, *pythons), 0.0)
    first = next(place for place, told in enumerate(rounds[0].phases) if "committed" in told[0])
    for place, (name, _, _) in enumerate(rounds[0].phases[: first + 1]):
        told = [one.phases[place] for one in rounds]
        ends = median(item[1] for item in told)
        cpu = {kind: median(_cpu_of(item[2], kind) for item in told) for kind in used}
        spent = [cpu[kind] - used[kind] for kind in used]
        table.add_row(name, f"{ends:.2f}", f"{ends - at:.2f}", f"{sum(spent):.2f}", *(f"{it:.2f}" for it in spent))
        at, used = ends, cpu
    table.add_row("all", f"{at:.2f}", "", f"{sum(used.values()):.2f}", *(f"{it:.2f}" for it in used.values()))
    Console(width=130).print(table)


def _cpu_of(used: Mapping[str, float], kind: str) -> float:
    named = (JAVA, DRIVER, SERVER, NODE)
    return used.get(kind, 0.0) if kind != OTHERS else sum(used[it] for it in used if it not in named)


def show_processes(title: str, columns: Mapping[str, Mapping[str, float]]) -> None:
    table = Table(title=title)
    table.add_column("process")
    for name in columns:
        table.add_column(name, justify="right")
    kinds_found = sorted({kind for told in columns.values() for kind in told} - {NODE})
    for kind in [*kinds_found, NODE]:
        table.add_row(kind, *(f"{told.get(kind, 0):.1f}" for told in columns.values()))
    table.add_row("all but the node", *(f"{_sum(told):.1f}" for told in columns.values()))
    Console(width=130).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=TARGETS)
    parser.add_argument("--workload", choices=("count", "map"), default="count")
    parser.add_argument("--rounds", type=int, default=3, help="of start")
    parser.add_argument("--seconds", type=float, default=30, help="of idle and steady")
    parser.add_argument("--warm-up", type=float, default=120, help="of steady: seconds before it counts")
    parser.add_argument("--records", type=int, default=6_000_000, help="of memory")
    parser.add_argument("--native", action="store_true", help="of memory: Java's by its own account, too")
    asked = parser.parse_args()
    with environment() as (node, client):
        streams.fill(client, asked.records if asked.what == "memory" else FIRST_RECORDS)
        if asked.what == "start":
            show_start([start(node, client, asked.workload) for _ in range(asked.rounds)], asked.workload)
        elif asked.what == "idle":
            cpu, pss = idle(node, client, asked.workload, asked.seconds)
            show_processes(f"idle ({asked.workload}); target {TARGETS['idle']}", {"% of a core": cpu, "PSS MiB": pss})
        elif asked.what == "steady":
            cpu, committed = steady(node, client, asked.workload, asked.warm_up, asked.seconds)
            show_processes(
                f"steady ({asked.workload}), {RATE:,} records/s, {committed} micro-batches",
                {"ms of CPU each": cpu},
            )
        else:
            peak, parts, took = memory(node, client, asked.workload, asked.native)
            show_processes(f"memory ({asked.workload}); target {TARGETS['memory']}", {"PSS MiB at the peak": peak})
            for name, mib in sorted(parts.items(), key=lambda item: -item[1]):
                print(f"  Java: {name}: {mib:.0f} MiB committed")
            print(f"{asked.records:,} records in {took:.1f} s with the start")
    return 0


if __name__ == "__main__":
    sys.exit(load.run(main))
