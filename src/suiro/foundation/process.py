"""Starts, watches, stops and kills child processes, and delays restarts. What parent and child tell each other.

A child of suiro stops when this process ends, even by kill -9, because its standard input closes. Cheap to import.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from suiro.clock import monotonic_s
from suiro.errors import FatalError, SuiroError, TransientError, UsageError
from suiro.foundation.readiness import NOTIFY_SOCKET

STOP_TIMEOUT_S = 5.0
READ_BYTES = 4096
LOG_LIMIT_BYTES = 16 * 1024 * 1024
"""Of a child's log, and of the part before it that is kept."""

Process = subprocess.Popen[bytes]

KINDS: Mapping[str, type[SuiroError]] = {"usage": UsageError, "transient": TransientError, "fatal": FatalError}


def start_service(
    arguments: Sequence[str], *, stdout: int, stderr: IO[bytes] | None = None, listener: socket.socket | None = None
) -> Process:
    """Start `suiro ARGUMENTS`, with a socket that already listens."""
    command = [sys.executable, "-m", "suiro", *arguments, "--while-stdin-is-open"]
    if listener is not None:
        command += ["--listen-fd", str(listener.fileno())]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        pass_fds=() if listener is None else (listener.fileno(),),
        # systemd waits for the parent, not for its children.
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
    """Start a command in a new session. stdout has its `events`, stderr is appended to `log`, and stdin gets `given` as
    a line of JSON."""
    limit_log(log)
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
        send_line(process, json.dumps(given))
    return process


def limit_log(log: Path) -> None:
    """Move what a log beyond `LOG_LIMIT_BYTES` has to `NAME.old`. Whoever writes to it goes on, because it is open for
    appending; lines of this very moment are lost."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > LOG_LIMIT_BYTES:
            with contextlib.suppress(OSError):  # a full disk: then without the old part
                shutil.copyfile(log, log.with_name(f"{log.name}.old"))
            os.truncate(log, 0)


def send_line(process: Process, line: str) -> None:
    """Write a line to its standard input. Does nothing if the process has ended; its exit code says why."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()


def events(process: Process) -> Iterator[dict[str, Any]]:
    """Return the JSON objects on its stdout, one for each line, until stdout closes. Other lines are skipped."""
    assert process.stdout is not None
    for line in process.stdout:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                yield event


def event_writer() -> Callable[..., None]:
    """In the child: what writes the events, `event_writer()("running", since=1)`. Whatever else writes to standard
    output (a user's code, Java) writes to standard error from now on."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def say(event: str, **values: Any) -> None:
        with lock, contextlib.suppress(BrokenPipeError):
            print(json.dumps({"event": event, **values}), file=out, flush=True)

    return say


def answer(do: Callable[[], Any], *, place: Callable[[Exception], str] = lambda _: "") -> None:
    """In a child that does one thing for its parent: write what `do` returns or raises to standard output, as
    {"ok": ...} or {"error": message, "kind": ...}. `place` says where in the user's code an error was."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the user's code must not be taken for the answer
    try:
        made: dict[str, Any] = {"ok": do()}
    except SuiroError as error:
        kind = next((name for name, cls in KINDS.items() if isinstance(error, cls)), "fatal")
        made = {"error": str(error), "kind": kind}
    except Exception as error:  # noqa: BLE001 - a user's code raises anything; the answer has it
        traceback.print_exc()
        made = {"error": f"{type(error).__name__}: {error}{place(error)}", "kind": "usage"}
    answers.write(json.dumps(made).encode())
    answers.close()


def answered(text: bytes, *, missing: str) -> Any:
    """Return what `do` returned, or raise its error by its kind. Without an answer, raise `FatalError(missing)`."""
    try:
        found = json.loads(text)
    except ValueError:
        raise FatalError(missing) from None
    if "error" in found:
        raise KINDS[found["kind"]](found["error"])
    return found["ok"]


def lines_of_stdin() -> Iterator[bytes]:
    """In the child, and on a daemon thread, too: a thread that waits for Python's own `sys.stdin` when the process ends
    is a fatal error of Python."""
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        yield from stdin


def first_line(process: Process, timeout_s: float) -> bytes:
    """Return the first line on its stdout, or b"" if the process ends without one. Raises `TimeoutError`."""
    assert process.stdout is not None
    deadline = monotonic_s() + timeout_s
    line = b""
    poll = select.poll()  # `select.select` takes no descriptor above 1,023
    poll.register(process.stdout, select.POLLIN)
    while not line.endswith(b"\n"):
        left = deadline - monotonic_s()
        if left <= 0:
            raise TimeoutError(f"it said nothing within {timeout_s:g} s")
        if poll.poll(left * 1_000):
            part = os.read(process.stdout.fileno(), READ_BYTES)
            if not part:
                return b""
            line += part
    return line


def stop(process: Process, timeout_s: float = STOP_TIMEOUT_S) -> int:
    """Send SIGTERM, and SIGKILL after the timeout. Close its pipes and return the exit code."""
    process.terminate()
    wait_or_kill(process, timeout_s)
    close_pipes(process)
    return process.returncode


def kill(process: Process) -> None:
    """Send SIGKILL, wait, and close its pipes."""
    process.kill()
    process.wait()
    close_pipes(process)


def kill_group(process: Process) -> None:
    """Send SIGKILL to all of its process group, and wait. Its pipes stay open."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_of(code: int) -> str:
    """Return how a process ended, for a message."""
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"


def session_members(leader: int) -> list[int]:
    """Return the processes of a session. Without /proc only its leader, whose end the others follow."""
    if not os.path.exists("/proc/self"):
        return [leader]
    members = []
    for number in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(number) == leader:
                members.append(number)
    return members


def wait_or_kill(process: Process, timeout_s: float) -> bool:
    """Wait until it ends; kill it after the timeout. Return whether it ended by itself."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def give_way(niceness: int) -> None:
    """Lower the priority of this process, which is the only one of its session. Where Linux groups processes by
    session, niceness has no effect between sessions."""
    os.nice(niceness)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness))


def close_pipes(process: Process) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # data that it has not read
                pipe.close()


def process_user() -> str:
    """Who runs this process, as NAME@HOST. A user without a name, as containers have them, is called by the number."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


class Backoff:
    """Delays between restarts. Each is twice the one before, up to a limit, until `reset`."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self.pause_s = first_s
        """The next delay."""

    def reset(self) -> None:
        self.pause_s = self._first_s

    def wait(self, stopping: threading.Event) -> None:
        stopping.wait(self.pause_s)
        self.pause_s = min(self.pause_s * 2, self._longest_s)
