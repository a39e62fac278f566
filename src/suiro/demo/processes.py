"""Starts, freezes, kills and stops the processes of the demo.

A part may consist of several processes: a Spark driver is Python, its JVM, and the Python workers of the JVM. They
share a session, so all of them are frozen and killed together. Each process ends when its standard input closes, so
none outlives the demo.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

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
