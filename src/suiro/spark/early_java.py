"""Starts Spark's JVM while Python still imports the modules for Spark: both take seconds.

`started_early` starts it; `spark_session` takes it if it is what it would start itself, and otherwise starts its own.
It is what PySpark's own `launch_gateway` starts, in the same environment, and PySpark connects to it. But secrets among
the settings are in a file of this user: a command line shows them to every user of the machine.

Invariants: a Java that nobody took has ended when `started_early` is left. One that was taken ends as PySpark's own
does, with this process.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from suiro.clock import monotonic_s, sleep_s
from suiro.foundation.process import kill
from suiro.spark.java import set_in

LOOK_S = 0.01
START_S = 120.0
_QUICK_LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of the Java that only finds out how Spark's Java is to be started."""
_SECRET = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)
"""As Spark's own `spark.redaction.regex`."""


@dataclass(frozen=True, slots=True)
class _Started:
    process: subprocess.Popen[bytes]
    folder: str  # where it writes how to reach it
    settings: Mapping[str, str]
    environment: Mapping[str, str]

    def reached_by(self) -> tuple[int, str] | None:
        """Its port and secret; None where it ended."""
        path = Path(self.folder, "connection")
        deadline = monotonic_s() + START_S
        while self.process.poll() is None and monotonic_s() < deadline:
            if path.is_file():
                data = path.read_bytes()
                port, length = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
                return port, data[8 : 8 + length].decode()
            sleep_s(LOOK_S)
        return None

    def end(self) -> None:
        kill(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


_waiting: list[_Started] = []  # one at most


@contextmanager
def started_early(
    settings: Mapping[str, str], environment: Mapping[str, str], *, pass_fds: Sequence[int] = ()
) -> Iterator[None]:
    """`settings`: as Spark's command line takes them. `environment`: Java's; without it this process's. `pass_fds`:
    files that Java holds open until it ends."""
    if not _waiting and _is_first():
        with suppress(OSError):
            _waiting.append(_start(settings, environment, pass_fds))
    try:
        yield
    finally:
        while _waiting:
            _waiting.pop().end()


def take(settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Gives the Java that was started early to PySpark, if it has these settings and this environment. Ends it
    otherwise. Starts one now if PySpark's own would show secrets."""
    if not _waiting and _is_first() and any(map(_SECRET.search, settings)):
        with suppress(OSError):
            _waiting.append(_start(settings, environment, ()))
    if not _waiting:
        return
    started = _waiting.pop()
    reached_by = None
    if _is_first() and started.settings == settings and started.environment == dict(environment):
        reached_by = started.reached_by()
    if reached_by is None:
        started.end()
        return
    from pyspark import SparkContext

    try:
        gateway = gateway_at(*reached_by)
    except BaseException:
        started.end()
        raise
    shutil.rmtree(started.folder, ignore_errors=True)
    gateway.proc = started.process
    SparkContext._ensure_initialized(gateway=gateway)


def gateway_at(port: int, secret: str) -> Any:
    """PySpark's gateway to a Java that runs."""
    from pyspark.java_gateway import launch_gateway

    with set_in(os.environ, PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
        return launch_gateway()  # type: ignore[no-untyped-call]


def _is_first() -> bool:
    """Whether PySpark would start a Java now."""
    if os.name != "posix" or "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ:
        return False
    context = sys.modules.get("pyspark.core.context")
    return context is None or context.SparkContext._gateway is None


def _start(settings: Mapping[str, str], environment: Mapping[str, str], pass_fds: Sequence[int]) -> _Started:
    spec = find_spec("pyspark")
    home = environment.get("SPARK_HOME") or os.path.dirname((spec.origin if spec else None) or "")
    command = [os.path.join(home, "bin", "spark-submit")]
    for name, value in settings.items():
        if not _SECRET.search(name):
            command += ["--conf", f"{name}={value}"]
    folder = tempfile.mkdtemp(prefix="suiro-java-")  # nobody else may enter it
    try:
        if secrets := {name: value for name, value in settings.items() if _SECRET.search(name)}:
            path = Path(folder, "secrets.conf")
            path.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in secrets.items()), encoding="utf-8")
            command += ["--properties-file", str(path), "--load-spark-defaults"]
        command += shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        given = {
            "SPARK_LAUNCHER_OPTS": _QUICK_LAUNCHER,
            **environment,
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": os.path.join(folder, "connection"),
        }
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # Java ends when it closes
            env=given,
            pass_fds=pass_fds,
            preexec_fn=_ignore_interrupts,
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return _Started(process, folder, dict(settings), dict(environment))


def _escaped(value: object) -> str:
    """As `java.util.Properties` reads it."""
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's
