"""Starts, freezes, kills and stops the processes of the demo, at the worst moment.

A part may consist of several processes: a Spark driver is Python, its JVM, and the Python workers of the JVM. They
share a session, so all of them are frozen and killed together. Each process ends when its standard input closes, so
none outlives the demo.

A moment of milliseconds may pass between a look and a kill. So the process is stopped (SIGSTOP), and the log is asked
again whether a transaction is open. If it is, it stays open, and the kill follows. Otherwise the process and the search
continue. On a busy machine a look takes longer than a transaction: after two missed moments, the process is stopped
before each look.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from suiro.client import LATEST, Client
from suiro.clock import monotonic_s, sleep_s
from suiro.demo.names import PARTITIONS
from suiro.errors import FatalError
from suiro.foundation import process
from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess

READY_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
LOG_TAIL_LINES = 30


class Log:
    """The process of the log: `suiro node`, a real Apache Kafka, or a running cluster, which is never killed."""

    def __init__(self, directory: Path, *, kafka: bool, bootstrap: str | None) -> None:
        self._directory = directory
        self._process: NodeProcess | KafkaProcess | None = None
        self.name, self.bootstrap_servers = "running cluster", bootstrap or ""
        if bootstrap is None:
            self.name = "Apache Kafka" if kafka else "suiro node"
            self._process = KafkaProcess.start(directory / "kafka") if kafka else self._node("127.0.0.1:0")
            self.bootstrap_servers = self._process.bootstrap_servers

    def _node(self, listen: str) -> NodeProcess:
        folder = self._directory
        return NodeProcess.start(data=folder / "node", listen=listen, log=folder / "node.log")

    @property
    def is_ours(self) -> bool:
        return self._process is not None

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()

    def restart(self) -> None:
        """Restarts it after `kill`, with the same address and data."""
        if isinstance(self._process, KafkaProcess):
            self._process.restart()
        else:
            self._process = self._node(self.bootstrap_servers)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()


class Session:
    """All processes of a session. `pid` is its leader."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @property
    def ended(self) -> bool:
        return not self.members()

    def freeze(self) -> None:
        """Suspends every process (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Sends SIGKILL to every process, as in a power failure."""
        self._signal(signal.SIGKILL)

    def cpu_seconds(self) -> float:
        """Returns the processor time of its processes and their ended children; 0 without /proc."""
        ticks = 0
        for member in self.members():
            with suppress(OSError):
                fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))  # user and system, its own and of ended children
        return ticks / os.sysconf("SC_CLK_TCK")

    def members(self) -> Sequence[int]:
        return process.session_members(self.pid)

    def _signal(self, number: int) -> None:
        for member in self.members():
            with suppress(ProcessLookupError):
                os.kill(member, number)


class Child(Session):
    """`python -m MODULE ARGUMENTS` in its own session. `events` has the JSON objects that it writes to standard output,
    one a line. Standard error goes to `log_path`."""

    def __init__(
        self,
        what: str,
        module: str,
        *arguments: str,
        log_path: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.what = what
        self.log_path = log_path
        self.events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._is_silent = False
        command = [sys.executable, "-m", module, *arguments]
        self._process = process.start_command(command, log=log_path, environment=environment)
        super().__init__(self._process.pid)
        self._listener = threading.Thread(target=self._listen, name=f"demo-{what}", daemon=True)
        self._listener.start()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait_ready(self) -> dict[str, Any]:
        """Returns its first event. Raises `FatalError` if it ends without one."""
        with self._changed:
            self._changed.wait_for(lambda: self.events or self._is_silent, READY_TIMEOUT_S)
            if self.events:
                return self.events[0]
        raise FatalError(f"{self.what} did not begin within {READY_TIMEOUT_S} s, or ended; {self.tail()}")

    def tell(self, line: str) -> None:
        process.send_line(self._process, line)

    def kill(self) -> None:
        super().kill()
        self._process.wait()
        self._close()

    def stop(self) -> None:
        """Stops it cleanly by closing its input. Raises `FatalError` if it fails or does not end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        ended = process.wait_or_kill(self._process, STOP_TIMEOUT_S)
        self._signal(signal.SIGKILL)  # workers that a JVM left behind
        self._close()
        if not ended:
            raise FatalError(f"{self.what} did not end within {STOP_TIMEOUT_S} s; {self.tail()}")
        if (code := self._process.returncode) != 0:
            raise FatalError(f"{self.what} ended with exit code {code}; {self.tail()}")

    def tail(self) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return f"the end of {self.log_path}:\n" + "\n".join(lines)

    def _listen(self) -> None:
        for event in process.events(self._process):
            with self._changed:
                self.events.append(event)
                self._changed.notify_all()
        with self._changed:
            self._is_silent = True
            self._changed.notify_all()

    def _close(self) -> None:
        self._listener.join(STOP_TIMEOUT_S)
        process.close_pipes(self._process)


HUNT_TIMEOUT_S = 600  # takes seconds on an idle machine
LOOK_EVERY_S = 0.001  # the transaction of a small micro-batch is open for milliseconds
SETTLE_S = 0.05
MISSES_MAX = 2
RUNS_S = 0.004  # between two stops

T = TypeVar("T")


class OpenTransaction(NamedTuple):
    topic: str
    partition: int
    last_stable: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} ends at {self.end:,}, decided up to {self.last_stable:,}"


def open_transaction(client: Client, *topics: str) -> OpenTransaction | None:
    """Returns a partition whose last stable offset is before its end."""
    stable = _ends(client, topics, read_committed=True)
    for place, end in _ends(client, topics, read_committed=False).items():
        if stable[place] < end:
            return OpenTransaction(*place, stable[place], end)
    return None


def readable_ends(client: Client, topic: str) -> dict[int, int]:
    """Returns the end of each partition for a read_committed reader."""
    return {partition: end for (_, partition), end in _ends(client, [topic], read_committed=True).items()}


def _ends(client: Client, topics: Sequence[str], *, read_committed: bool) -> dict[tuple[str, int], int]:
    wanted = {(topic, partition): LATEST for topic in topics for partition in range(PARTITIONS)}
    listed = client.list_offsets(wanted, read_committed=read_committed)
    return {place: item.offset for place, item in listed.items()}


def freeze_when(
    process: Session,
    look: Callable[[], T | None],
    what: str,
    *,
    until: Callable[[], bool] = lambda: False,
    settle_s: float = SETTLE_S,
) -> T | None:
    """Freezes the process when `look` finds something, and returns that. None: the process ended, or `until` became
    true."""
    ends_s = monotonic_s() + HUNT_TIMEOUT_S
    misses = 0
    while monotonic_s() < ends_s:
        if process.ended or until():
            return None
        stops_first = misses >= MISSES_MAX
        if stops_first or look() is not None:
            process.freeze()
            if look() is not None:
                sleep_s(settle_s)  # data sent before the freeze may still arrive
                if (found := look()) is not None:
                    return found
            process.resume()
            misses += 1
        sleep_s(RUNS_S if stops_first else LOOK_EVERY_S)
    raise FatalError(f"no {what} was seen within {HUNT_TIMEOUT_S} s")


def unfinished_micro_batch(checkpoint: Path) -> int | None:
    """Returns the micro-batch that was planned (`offsets/N`) but not finished (`commits/N`), or None."""
    planned, finished = (max(_numbers(checkpoint / name), default=-1) for name in ("offsets", "commits"))
    return planned if planned > finished else None


def finished_micro_batches(checkpoint: Path) -> int:
    """Returns how many micro-batches a query has finished: their numbers start at 0."""
    return max(_numbers(checkpoint / "commits"), default=-1) + 1


def _numbers(directory: Path) -> set[int]:
    names = directory.iterdir() if directory.is_dir() else ()
    return {int(path.name) for path in names if path.name.isdigit()}
