"""A service of suiro as a child process beside another, for as long as that runs. Light to import."""

from __future__ import annotations

import logging
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence

from suiro.clock import monotonic_s
from suiro.errors import ConfigError
from suiro.foundation.process import STOP_TIMEOUT_S, Backoff, close_pipes, start_service, stop

TRY_LATER = 75  # the exit code of a child that may run later; sysexits.h calls it EX_TEMPFAIL
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
STARTED_S = 60.0  # a child that ran for longer was able to start

logger = logging.getLogger(__name__)


class Beside:
    """A service that has its address at once, and is restarted whenever it dies.

    The socket listens in this process. A client that connects before the child serves waits for it, about a second. A
    child that exits because it cannot run (a wrong setting), and never could, is not restarted: `failed` is called, on
    a thread of this object.
    """

    def __init__(
        self, name: str, listener: socket.socket, arguments: Sequence[str], *, failed: Callable[[ConfigError], None]
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
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        has_run = False
        while True:
            try:
                with self._lock:
                    if self._stopping.is_set():
                        return
                    process = self._process = start_service(
                        self._arguments, stdout=subprocess.DEVNULL, listener=self._listener
                    )
            except OSError as error:  # no memory or no process left at the moment
                logger.error(
                    "the %s cannot be started: %s; it is tried again in %g s", self._name, error, backoff.pause_s
                )
                backoff.wait(self._stopping)
                continue
            started = monotonic_s()
            code = process.wait()
            close_pipes(process)
            if self._stopping.is_set():
                return
            ran_s = monotonic_s() - started
            has_run = has_run or ran_s > STARTED_S
            if ran_s > LONGEST_PAUSE_S * 2:
                backoff.reset()
            # Later, a wrong setting is one in a file that has changed. It can be put right while this process goes on.
            if code > 0 and code != TRY_LATER and not has_run:
                self._failed(
                    ConfigError(f"the {self._name} beside this process ended with code {code}; its log says why")
                )
                return
            logger.error("the %s ended (%d); it is started again in %g s", self._name, code, backoff.pause_s)
            backoff.wait(self._stopping)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def tell_to_stop(self) -> None:
        with self._lock:
            self._stopping.set()
            if self._process is not None:
                self._process.terminate()

    def stop(self) -> None:
        """Safe to call again."""
        self.tell_to_stop()
        if self._process is not None:
            stop(self._process)
        self._thread.join(STOP_TIMEOUT_S)
        self._listener.close()
