"""The command `suiro` in a process that begins as a fork of one which has imported what such commands import.

Tests that kill captures, connectors and hosts of views start hundreds of processes, and most of a start is imports.
From `suiro.cli.main` on a fork does what any process does: it has its own arguments, environment, streams and folder,
and dies alone. That the commands start from nothing is what tests of single commands try, and the demo.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

MODULES = (
    "numba",
    "suiro.cli.capture",
    "suiro.cli.connect",
    "suiro.cli.view",
    "suiro.connect",
    "suiro.connect.postgres.capture",
    "suiro.connect.runtime",
    "suiro.registry",
    "suiro.views",
)
MOST_BYTES = 1 << 20


class Forked:
    """What tests use of `subprocess.Popen`. `stdout` is a pipe of text; `env` is added to that of the tests."""

    def __init__(self, *arguments: str, stderr: IO[bytes], env: Mapping[str, str] | None = None) -> None:
        self._origin = _origin()
        reading, writing = os.pipe()
        with open(os.devnull, "rb") as nothing:
            streams = [nothing.fileno(), writing, stderr.fileno()]
            self.pid = self._origin.start(arguments, os.environ | (env or {}), streams)
        os.close(writing)
        self._ended = os.pidfd_open(self.pid)
        self._lock = threading.Lock()
        self.returncode: int | None = None
        self.stdout = open(reading, encoding="utf-8")  # noqa: SIM115

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None:
                self.returncode = self._origin.status(self.pid)
            return self.returncode

    def __del__(self) -> None:
        os.close(self._ended)

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None:
            there, _, _ = select.select([self._ended], [], [], timeout)
            if not there:
                raise subprocess.TimeoutExpired("suiro", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(*arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with captured text."""
    with TemporaryFile() as errors:
        process = Forked(*arguments, stderr=errors)
        killer = threading.Timer(timeout, process.kill)
        killer.start()
        out = process.stdout.read()
        code = process.wait()
        # Else a test that expects a failure would take the kill for it.
        assert killer.is_alive(), f"{arguments} took more than {timeout} s"
        killer.cancel()
        process.stdout.close()
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, out, errors.read().decode())


class _Origin:
    """The process that forks. It ends with the tests, and its forks with it."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Else numpy's library of linear algebra starts threads, which a fork would not have.
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            )
        atexit.register(self._close)

    def start(self, arguments: tuple[str, ...], env: Mapping[str, str], streams: list[int]) -> int:
        wanted = {"arguments": arguments, "env": dict(env), "folder": str(Path.cwd())}
        pid = self._ask(wanted, streams)
        assert isinstance(pid, int)
        return pid

    def status(self, pid: int) -> int | None:
        return self._ask({"pid": pid}, [])

    def _ask(self, wanted: dict[str, Any], streams: list[int]) -> int | None:
        with self._lock:
            socket.send_fds(self._channel, [json.dumps(wanted).encode()], streams)
            answer: int | None = json.loads(self._channel.recv(100))
            return answer

    def _close(self) -> None:
        self._channel.close()
        self._process.wait()


@cache
def _origin() -> _Origin:
    return _Origin()


def _serve(channel: socket.socket) -> bool:
    """Answers until the tests close the channel. True in a fork."""
    running: set[int] = set()
    while True:
        data, streams, _, _ = socket.recv_fds(channel, MOST_BYTES, 3)
        if not data:
            break
        wanted = json.loads(data)
        if "pid" in wanted:
            pid, status = os.waitpid(wanted["pid"], os.WNOHANG)
            running.discard(pid)
            channel.send(json.dumps(os.waitstatus_to_exitcode(status) if pid else None).encode())
        elif pid := os.fork():
            running.add(pid)
            channel.send(json.dumps(pid).encode())
            for stream in streams:
                os.close(stream)
        else:
            channel.close()
            _become(wanted, streams)
            return True
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    return False


def _become(wanted: dict[str, Any], streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # Those of the first process know of another file whether it can be sought in.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    sys.path[0] = wanted["folder"]
    sys.argv = ["suiro", *wanted["arguments"]]


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())
    for _module in MODULES:
        importlib.import_module(_module)
    _threads = {_task.read_text().strip() for _task in Path("/proc/self/task").glob("*/comm")}
    # PyArrow's allocator starts its thread again in a fork.
    assert len(_threads - {"jemalloc_bg_thd"}) == 1, f"a fork would have one of these threads: {_threads}"
    if _serve(socket.socket(fileno=int(sys.argv[1]))):
        from suiro.cli import main

        main()
