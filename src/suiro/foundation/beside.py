"""A service of suiro as a child process: by itself, or beside another for as long as that runs.

The child stops, cleanly, when this process ends, be it by kill -9: it ends with its standard input. Light to import.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

from suiro.errors import ConfigError
from suiro.foundation.readiness import NOTIFY_SOCKET

__all__ = ["Beside", "close_pipes", "start_child", "stop_child"]

TRY_LATER = 75  # the exit code of a child that may run later; sysexits.h calls it EX_TEMPFAIL
STOP_TIMEOUT_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0

logger = logging.getLogger(__name__)


def start_child(
    arguments: Sequence[str],
    *,
    stdout: int,
    stderr: IO[bytes] | None = None,
    listener: socket.socket | None = None,
) -> subprocess.Popen[bytes]:
    """`suiro ARGUMENTS`, over a socket that listens already."""
    command = [sys.executable, "-m", "suiro.cli", *arguments]
    command.append("--while-stdin-is-open")  # the pipe below closes with this process, however it ends
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


def stop_child(process: subprocess.Popen[bytes]) -> int:
    """Stops it cleanly; returns the exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    close_pipes(process)
    return code


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


class Beside:
    """A service whose address stands at once, and which is started again whenever it dies.

    The socket listens here. Whoever calls before the child serves waits for it, a second or so. A child that says it
    cannot run (a wrong setting) is not started again: `failed` is called, on a thread of this object.
    """

    def __init__(
        self,
        name: str,
        listener: socket.socket,
        arguments: Sequence[str],
        *,
        failed: Callable[[ConfigError], None],
    ) -> None:
        self._name = name
        self._listener = listener
        self._arguments = tuple(arguments)
        self._failed = failed
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name=f"{name}-beside", daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            with self._lock:
                if self._stopping.is_set():
                    return
                process = self._process = start_child(
                    self._arguments, stdout=subprocess.DEVNULL, listener=self._listener
                )
            started = time.monotonic()
            code = process.wait()
            close_pipes(process)
            if self._stopping.is_set():
                return
            if code > 0 and code != TRY_LATER:
                self._failed(
                    ConfigError(
                        f"the {self._name} beside this process ended with code {code}; its log says why"
                    )
                )
                return
            logger.error("the %s ended (%d); it is started again in %g s", self._name, code, pause_s)
            self._stopping.wait(pause_s)
            lived_long = time.monotonic() - started > LONGEST_PAUSE_S * 2
            pause_s = FIRST_PAUSE_S if lived_long else min(pause_s * 2, LONGEST_PAUSE_S)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def tell_to_stop(self) -> None:
        with self._lock:
            self._stopping.set()
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Safe to call again."""
        self.tell_to_stop()
        if self._process is not None:
            stop_child(self._process)
        self._thread.join(STOP_TIMEOUT_S)
        self._listener.close()
