"""Child processes: how one is started, heard, stopped and killed, and how long to wait before it is started again.

A child ends, cleanly, when this process ends, be it by kill -9: its standard input closes then. Light to import.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from suiro.clock import monotonic_s
from suiro.foundation.readiness import NOTIFY_SOCKET

__all__ = [
    "Backoff",
    "close_pipes",
    "events",
    "first_line",
    "kill",
    "start_command",
    "start_service",
    "stop",
    "tell",
    "wait_or_kill",
]

STOP_TIMEOUT_S = 5.0
READ_BYTES = 4096

Process = subprocess.Popen[bytes]


def start_service(
    arguments: Sequence[str],
    *,
    stdout: int,
    stderr: IO[bytes] | None = None,
    listener: socket.socket | None = None,
) -> Process:
    """`suiro ARGUMENTS`, over a socket that listens already."""
    command = [sys.executable, "-m", "suiro.cli", *arguments, "--while-stdin-is-open"]
    if listener is not None:
        command += ["--listen-fd", str(listener.fileno())]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        pass_fds=() if listener is None else (listener.fileno(),),
        # Who is ready is the parent, and not one of its children.
        env={name: value for name, value in os.environ.items() if name != NOTIFY_SOCKET},
        start_new_session=True,
    )


def start_command(
    command: Sequence[str],
    *,
    log: Path,
    given: object = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Process:
    """In a session of its own, with `events` on stdout. stderr goes to the end of `log`; `given` is told as JSON."""
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=folder,
            env=None if environment is None else {**os.environ, **environment},
            start_new_session=True,
        )
    if given is not None:
        tell(process, json.dumps(given))
    return process


def tell(process: Process, line: str) -> None:
    """On its standard input. One that has ended already hears nothing; how it ended says more."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()


def events(process: Process) -> Iterator[dict[str, Any]]:
    """The JSON objects on its stdout, one a line, until it closes; other lines are left out."""
    assert process.stdout is not None
    for line in process.stdout:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                yield event


def first_line(process: Process, timeout_s: float) -> bytes:
    """Of its stdout; empty where it ended without one. Raises `TimeoutError`."""
    assert process.stdout is not None
    deadline = monotonic_s() + timeout_s
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - monotonic_s()
        if left <= 0:
            raise TimeoutError(f"it said nothing within {timeout_s:g} s")
        if select.select([process.stdout], [], [], left)[0]:
            part = os.read(process.stdout.fileno(), READ_BYTES)
            if not part:
                return b""
            line += part
    return line


def stop(process: Process, timeout_s: float = STOP_TIMEOUT_S) -> int:
    """SIGTERM, or kill -9 if that takes longer. Closes its pipes; returns the exit code."""
    process.terminate()
    wait_or_kill(process, timeout_s)
    close_pipes(process)
    return process.returncode


def kill(process: Process) -> None:
    """kill -9, as a crash would. Closes its pipes."""
    process.kill()
    process.wait()
    close_pipes(process)


def wait_or_kill(process: Process, timeout_s: float) -> bool:
    """Whether it has ended in time. If not, it is killed; it is gone when this returns."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def close_pipes(process: Process) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # of what it was told and has not read
                pipe.close()


class Backoff:
    """Pauses between the starts of what ends again and again: each twice as long, until it got somewhere."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self.pause_s = first_s
        """The next one."""

    def reset(self) -> None:
        self.pause_s = self._first_s

    def wait(self, stopping: threading.Event) -> None:
        stopping.wait(self.pause_s)
        self.pause_s = min(self.pause_s * 2, self._longest_s)
