"""A streams application as a process of its own: started, watched until all of its input is committed, stopped.

Time ends when the application has committed the offsets of all its input, and of its repartition topics if any. It
begins when the application says that it runs (by the file READY_FILE), or when its process is started. Memory is looked
at several times a second: the sum of the peaks (VmHWM) of its processes, and the largest sum of their PSS, in which a
page that processes share counts once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from peers import cost, peak_rss_mib, pss_mib, tree

from suiro.client import Client, NewTopic
from suiro.foundation.types import TopicPartition

LOOK_S = 0.05
MEMORY_EVERY = 20  # looks: a look at a gigabyte takes 20 ms, and stops the process meanwhile
STOP_TIMEOUT_S = 30
LOG_TAIL_LINES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of one workload."""

    seconds: float
    seconds_with_start: float
    memory_mib: float
    pss_mib: float
    cpu_s: float


class Failed(RuntimeError):
    """A run ended early, took too long, or gave a wrong output."""


def run(
    command: Callable[[str], Sequence[str]],
    *,
    application: str,
    client: Client,
    inputs: Sequence[TopicPartition],
    outputs: Sequence[str],
    partitions: int,
    configs: Mapping[str, str] = MappingProxyType({}),
    check: Callable[[], object],
    timeout_s: float,
) -> Measured:
    """`command` is given the path of READY_FILE. The topics of the output are made before, with so many partitions.

    `check` looks at them; then they are deleted, and all topics whose names begin with the application's.
    """
    with tempfile.TemporaryDirectory(prefix="suiro-bench-") as work:
        client.create_topics([NewTopic(output, partitions, configs=dict(configs)) for output in outputs])
        ends = _ends(client, inputs)
        ready, log_path = Path(work) / "ready", Path(work) / "log"
        watch = _Watch()
        with log_path.open("wb") as log:
            started = time.time()
            # In a folder and a session of its own: what it leaves behind is found and removed.
            process = subprocess.Popen(
                command(str(ready)), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=work,
                start_new_session=True,
            )  # fmt: skip
        try:
            look = 0
            while True:
                if look % MEMORY_EVERY == 0:
                    watch.look(process.pid)
                look += 1
                if _is_done(client, application, ends) and _repartitions_are_done(client, application):
                    ended = time.time()
                    break
                if process.poll() is not None:
                    raise Failed(f"{application} ended with exit code {process.returncode}:\n{_tail(log_path)}")
                if time.time() - started > timeout_s:
                    raise Failed(f"{application}: not done after {timeout_s:.0f} s\n{_tail(log_path)}")
                time.sleep(LOOK_S)
            watch.look(process.pid)
            stop(process)
            check()
        finally:
            stop(process)
            own = [topic for topic in client.metadata() if topic.startswith(application)]
            client.delete_topics(sorted({*own, *outputs}))
        running = int(ready.read_text()) / 1000
    return Measured(
        seconds=ended - running, seconds_with_start=ended - started, memory_mib=watch.rss, pss_mib=watch.pss,
        cpu_s=sum(watch.cpu.values()),
    )  # fmt: skip


def _ends(client: Client, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return {place: end.offset for place, end in client.list_offsets(dict.fromkeys(places, -1)).items()}


def _repartitions(client: Client, application: str) -> dict[TopicPartition, int]:
    """Where the topics end through which the application sends records to itself. Those of foreign-key joins end in
    `-topic`."""
    topics = [
        name for name in client.metadata() if name.startswith(application) and name.endswith(("-repartition", "-topic"))
    ]
    found = client.metadata(topics) if topics else {}
    return _ends(client, [(name, item.partition) for name, info in found.items() for item in info.partitions])


def _repartitions_are_done(client: Client, application: str) -> bool:
    """A commit of the offsets of one repartition topic may write to another one, which was at its end before: so they
    must still end there when the offsets are known."""
    ends = _repartitions(client, application)
    return _is_done(client, application, ends) and _repartitions(client, application) == ends


def _is_done(client: Client, application: str, ends: Mapping[TopicPartition, int]) -> bool:
    # Not `require_stable`: it would wait for the transaction under way.
    committed = client.offset_fetch(application, list(ends), require_stable=False) if ends else {}
    return all((at := committed.get(place)) and at.offset >= end for place, end in ends.items() if end)


class _Watch:
    """What the processes of an application have used so far, those that have ended meanwhile included."""

    def __init__(self) -> None:
        self.rss = self.pss = 0.0
        self.cpu: dict[int, float] = {}

    def look(self, root: int) -> None:
        found = tree(root)
        self.rss = max(self.rss, peak_rss_mib(found))
        self.pss = max(self.pss, pss_mib(found))
        for pid in found:
            with suppress(OSError):
                self.cpu[pid] = cost(pid).cpu_seconds


def _tail(log_path: Path) -> str:
    return "\n".join(log_path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then kill -9 for what is left of its processes."""
    if process.poll() is not None and not tree(process.pid):
        return
    ours = tree(process.pid)
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while (left := ours & tree(process.pid)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_S)
