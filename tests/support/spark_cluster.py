"""A Spark standalone cluster on this machine: a master and workers, each a process (and a session) of its own.

Each worker has a loopback address of its own: Spark starts no speculative copy on the host where the first one runs.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyspark

from suiro.spark import find_java
from tests.support.waiting import wait_until

DEADLINE_S = 120.0
HOME = Path(pyspark.__file__).parent


@dataclass(frozen=True)
class Worker:
    """`kill` takes its executors and their Python workers along, as when the machine is switched off."""

    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        kill_session(self.process.pid)
        self.process.wait()


class StandaloneCluster:
    """Use as a context manager. `logs` are in its directory."""

    def __init__(self, directory: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._directory = directory
        self._workers = workers
        self._cores = cores
        self._memory = memory
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> StandaloneCluster:
        self._directory.mkdir(parents=True)
        try:
            self._start("master", "127.0.0.1", "org.apache.spark.deploy.master.Master")
            self.url = wait_until(
                lambda: self._said("master", r"Starting Spark master at (spark://\S+)"),
                DEADLINE_S,
                "the master's address",
            )
            self.workers = [self._worker(number) for number in range(self._workers)]
            for number in range(self._workers):
                wait_until(
                    lambda name=f"worker-{number}": self._said(name, "(Successfully registered)"),  # type: ignore[misc]
                    DEADLINE_S,
                    f"worker {number} at the master",
                )
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for process in self._started:
            kill_session(process.pid)
            process.wait()

    def _worker(self, number: int) -> Worker:
        name = f"worker-{number}"
        options = ["--cores", str(self._cores), "--memory", self._memory]
        options += ["--work-dir", str(self._directory / name)]
        kind = "org.apache.spark.deploy.worker.Worker"
        return Worker(self._start(name, f"127.0.0.{2 + number}", kind, *options, self.url))

    def _start(self, name: str, host: str, *command: str) -> subprocess.Popen[bytes]:
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [HOME / "bin" / "spark-class", *command, "--host", host, "--port", "0", "--webui-port", "0"],
                env=os.environ | spark_environment() | {"SPARK_LOCAL_IP": host},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def _said(self, name: str, pattern: str) -> str | None:
        text = (self._directory / f"{name}.log").read_text(errors="replace")
        assert all(process.poll() is None for process in self._started), text[-4000:]
        found = re.search(pattern, text)
        return None if found is None else found[1]


def spark_environment() -> dict[str, str]:
    return {
        "SPARK_HOME": str(HOME),
        "JAVA_HOME": str(find_java(os.environ).path),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }


def kill_session(session: int) -> None:
    """Every process of it: Python workers have process groups of their own, but no sessions."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                continue
