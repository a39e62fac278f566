"""The processes of the demo that get killed: the Spark driver, and the log (our node, or Apache Kafka).

A driver is more than one process: Python, its JVM, and the JVM's Python workers. They share a session, so all of
them can be stopped in their tracks, looked at, and killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from suiro.errors import FatalError
from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess

__all__ = ["DriverProcess", "EmbeddedNode", "Kafka", "Log", "RunningCluster"]

STOP_TIMEOUT_S = 60
LOG_TAIL_LINES = 30


class Log(Protocol):
    """What the demo needs of the log's process."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def name(self) -> str: ...

    def kill(self) -> bool:
        """kill -9; False where the process is not ours to kill."""
        ...

    def restart(self) -> None:
        """Starts again, same address and data, after `kill`."""
        ...

    def stop(self) -> None: ...


class EmbeddedNode:
    """`suiro node`, as its own process."""

    name = "suiro node"

    def __init__(self, data: Path) -> None:
        self._data = data
        self._process = self._start("127.0.0.1:0")
        self.bootstrap_servers = self._process.bootstrap_servers

    def kill(self) -> bool:
        self._process.kill()
        return True

    def restart(self) -> None:
        self._process = self._start(self.bootstrap_servers)

    def stop(self) -> None:
        self._process.stop()

    def _start(self, listen: str) -> NodeProcess:
        return NodeProcess.start(data=self._data, listen=listen, log=self._data.with_suffix(".log"))


class Kafka:
    """A real Apache Kafka, started from its jars."""

    name = "Apache Kafka"

    def __init__(self, data: Path) -> None:
        self._process = KafkaProcess.start(data)
        self.bootstrap_servers = self._process.bootstrap_servers

    def kill(self) -> bool:
        self._process.kill()
        return True

    def restart(self) -> None:
        self._process.restart()

    def stop(self) -> None:
        self._process.stop()


class RunningCluster:
    """A cluster of the user's. It is not ours, so it is never killed."""

    name = "running cluster"

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def kill(self) -> bool:
        return False

    def restart(self) -> None:
        return

    def stop(self) -> None:
        return


class DriverProcess:
    """`python -m suiro.demo.driver` in a session of its own; what it says goes to `log_path`."""

    def __init__(
        self, *, bootstrap_servers: str, state_dir: Path, log_path: Path, max_offsets_per_trigger: int
    ) -> None:
        self.log_path = log_path
        command = [sys.executable, "-m", "suiro.demo.driver", "--bootstrap-servers", bootstrap_servers]
        command += ["--state-dir", str(state_dir)]
        command += ["--max-offsets-per-trigger", str(max_offsets_per_trigger)]
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def freeze(self) -> None:
        """Stops every process of the driver where it stands (SIGSTOP)."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9 for every process of the driver, as when its machine loses power."""
        self._signal_all(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """A clean stop: its input closes. Raises `FatalError` if it had failed or does not end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise FatalError(
                f"the Spark driver did not end within {STOP_TIMEOUT_S} s; {self.tail()}"
            ) from None
        self._signal_all(signal.SIGKILL)  # a worker that its JVM left behind
        if code != 0:
            raise FatalError(f"the Spark driver ended with exit code {code}; {self.tail()}")

    def tail(self) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return f"the end of {self.log_path}:\n" + "\n".join(lines)

    def _signal_all(self, number: int) -> None:
        for member in self._members():
            try:
                os.kill(member, number)
            except ProcessLookupError:
                continue

    def _members(self) -> list[int]:
        """Every process of the session; where there is no /proc, only the first (its JVM follows it)."""
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
