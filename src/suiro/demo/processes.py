"""The processes of the demo, each of which can be started, killed and stopped.

A process may consist of several (a Spark driver is Python, its JVM, and the Python workers of the JVM). They share a
session, so all of them can be stopped, inspected and killed together. Each ends when its standard input closes, so
that none outlives the demo.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from suiro.errors import FatalError
from suiro.foundation import process
from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess

__all__ = ["Child", "Log", "Session"]

READY_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
LOG_TAIL_LINES = 30
_NONE: Mapping[str, str] = {}


class Log:
    """The log's process: `suiro node`, a real Apache Kafka, or a cluster of the user's, which is never killed."""

    def __init__(self, directory: Path, *, kafka: bool, bootstrap: str | None) -> None:
        self._data = directory / "node"
        self._process: NodeProcess | KafkaProcess | None = None
        self.name, self.bootstrap_servers = "running cluster", bootstrap or ""
        if bootstrap is None:
            self.name = "Apache Kafka" if kafka else "suiro node"
            self._process = KafkaProcess.start(directory / "kafka") if kafka else self._start("127.0.0.1:0")
            self.bootstrap_servers = self._process.bootstrap_servers

    @property
    def is_ours(self) -> bool:
        return self._process is not None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Starts again, same address and data, after `kill`."""
        if isinstance(self._process, KafkaProcess):
            self._process.restart()
        elif self._process is not None:
            self._process = self._start(self.bootstrap_servers)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def _start(self, listen: str) -> NodeProcess:
        return NodeProcess.start(data=self._data, listen=listen, log=self._data.with_suffix(".log"))


class Session:
    """Every process of a session, whoever started it; `pid`: its first one, which led it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @property
    def ended(self) -> bool:
        return not self.members()

    def freeze(self) -> None:
        """Stops every process of the session where it stands (SIGSTOP)."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9 for every process of the session, as when its machine loses power."""
        self._signal_all(signal.SIGKILL)

    def cpu_seconds(self) -> float:
        """What its processes have used so far, and those of them that have ended; 0 where there is no /proc."""
        ticks = 0
        for member in self.members():
            try:
                # Of itself (user, system), and of its children that have ended.
                ticks += sum(
                    map(int, Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()[11:15])
                )
            except OSError:
                continue
        return ticks / os.sysconf("SC_CLK_TCK")

    def _signal_all(self, number: int) -> None:
        for member in self.members():
            try:
                os.kill(member, number)
            except ProcessLookupError:
                continue

    def members(self) -> Sequence[int]:
        """Where there is no /proc, only the first (what it started follows it)."""
        if not Path("/proc/self").exists():
            return [self.pid]
        members = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if os.getsid(int(entry)) == self.pid:
                        members.append(int(entry))
                except ProcessLookupError:
                    continue
        return members


class Child(Session):
    """`python -m MODULE ARGUMENTS` in a separate session. Each JSON line on its stdout is one of its `events`; its
    stderr goes to `log_path`."""

    def __init__(
        self, what: str, module: str, *arguments: str, log_path: Path, environment: Mapping[str, str] = _NONE
    ) -> None:
        self.what = what
        self.log_path = log_path
        self.events: list[dict[str, Any]] = []
        self._heard = threading.Condition()
        self._is_silent = False
        command = [sys.executable, "-m", module, *arguments]
        self._process = process.start_command(command, log=log_path, environment=environment)
        super().__init__(self._process.pid)
        self._listener = threading.Thread(target=self._listen, name=f"demo-{module}", daemon=True)
        self._listener.start()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait_ready(self) -> dict[str, Any]:
        """Its first event. Raises `FatalError` if it ended without one."""
        with self._heard:
            self._heard.wait_for(lambda: self.events or self._is_silent, READY_TIMEOUT_S)
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
        """A clean stop: its input closes. Raises `FatalError` if it had failed or does not end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        ended = process.wait_or_kill(self._process, STOP_TIMEOUT_S)
        self._signal_all(signal.SIGKILL)  # a worker that a JVM left behind
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
            with self._heard:
                self.events.append(event)
                self._heard.notify_all()
        with self._heard:
            self._is_silent = True
            self._heard.notify_all()

    def _close(self) -> None:
        self._listener.join(STOP_TIMEOUT_S)
        process.close_pipes(self._process)
