"""`suiro registry` as a child process: by itself, or beside a node for as long as that runs.

The child stops, cleanly, when this process ends, be it by kill -9. Light to import: no web server is loaded here.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Self

from suiro.errors import ConfigError
from suiro.foundation.http import url_of

__all__ = ["RegistryBeside", "RegistryProcess"]

TRY_LATER = 75  # its exit code when the log cannot be reached
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0

logger = logging.getLogger(__name__)


def _start(
    bootstrap_servers: str,
    options: Sequence[str],
    *,
    stdout: int,
    stderr: IO[bytes] | None = None,
    listener: socket.socket | None = None,
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "suiro.cli", "registry", "--bootstrap", bootstrap_servers, *options]
    command.append("--while-stdin-is-open")  # the pipe below closes with this process, however it ends
    if listener is not None:
        command += ["--listen-fd", str(listener.fileno())]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        pass_fds=() if listener is None else (listener.fileno(),),
        start_new_session=True,
    )


class RegistryProcess:
    """A registry of one's own. A context manager: leaving it stops the registry."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process = process
        self.url = url

    @classmethod
    def start(
        cls,
        bootstrap_servers: str,
        *,
        listen: str = "127.0.0.1:0",
        log: Path | None = None,
        options: Sequence[str] = (),
        timeout_s: float = START_TIMEOUT_S,
    ) -> Self:
        """Waits until it answers. `options` are further ones of the command. Raises `ConfigError`."""
        with open(log or os.devnull, "ab") as stderr:
            process = _start(
                bootstrap_servers, ["--listen", listen, *options], stdout=subprocess.PIPE, stderr=stderr
            )
        try:
            return cls(process, _ready_url(process, log, timeout_s))
        except BaseException:
            process.kill()
            process.wait()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """kill -9: no goodbye, as in a crash."""
        self._process.kill()
        self._process.wait()
        _close_pipes(self._process)

    def stop(self) -> int:
        """Stop cleanly; returns the exit code."""
        return _stop(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def _ready_url(process: subprocess.Popen[bytes], log: Path | None, timeout_s: float) -> str:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], timeout_s)
    line = process.stdout.readline() if readable else b""
    if line:
        url: str = json.loads(line)["registry"]
        return url
    said = log.read_text(errors="replace").strip().splitlines()[-1:] if log is not None else []
    why = said[0] if said else f"it said nothing within {timeout_s:g} s"
    raise ConfigError(f"the registry did not start: {why}")


def _stop(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    _close_pipes(process)
    return code


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


class RegistryBeside:
    """The registry of a node: its address stands at once, and it is started again whenever it dies.

    The socket listens here. Whoever calls before the child serves waits for it, a second or so. A child that says it
    cannot run (a wrong setting) is not started again: `failed` is called, on a thread of this object.
    """

    def __init__(
        self,
        listener: socket.socket,
        bootstrap_servers: str,
        *,
        options: Sequence[str] = (),
        failed: Callable[[ConfigError], None],
    ) -> None:
        self.url = url_of(listener)
        self._listener = listener
        self._arguments = (bootstrap_servers, tuple(options))
        self._failed = failed
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="registry-beside", daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            with self._lock:
                if self._stopping.is_set():
                    return
                bootstrap_servers, options = self._arguments
                process = self._process = _start(
                    bootstrap_servers, options, stdout=subprocess.DEVNULL, listener=self._listener
                )
            started = time.monotonic()
            code = process.wait()
            _close_pipes(process)
            if self._stopping.is_set():
                return
            if code > 0 and code != TRY_LATER:
                self._failed(
                    ConfigError(f"the registry beside the node ended with code {code}; its log says why")
                )
                return
            logger.error("the registry ended (%d); it is started again in %g s", code, pause_s)
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
            _stop(self._process)
        self._thread.join(STOP_TIMEOUT_S)
        self._listener.close()
