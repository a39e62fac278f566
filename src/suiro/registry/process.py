"""`suiro registry` as a child process. Importing this module loads no web server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from suiro.errors import ConfigError
from suiro.foundation.process import first_line, kill, start_service, stop

START_TIMEOUT_S = 60.0


class RegistryProcess:
    """A registry as a child process. A context manager: leaving it stops the registry."""

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
        """Starts a registry and waits until it responds. `options` are those of the command. Raises `ConfigError`."""
        with open(log or os.devnull, "ab") as stderr:
            process = start_service(
                ["registry", "--bootstrap-servers", bootstrap_servers, "--listen", listen, *options],
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        try:
            return cls(process, _ready_url(process, log, timeout_s))
        except BaseException:
            kill(process)
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash."""
        kill(self._process)

    def stop(self) -> int:
        """Stops the registry cleanly and returns the exit code."""
        return stop(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def _ready_url(process: subprocess.Popen[bytes], log: Path | None, timeout_s: float) -> str:
    why = f"it said nothing within {timeout_s:g} s"
    try:
        if line := first_line(process, timeout_s):
            url: str = json.loads(line)["registry"]
            return url
    except TimeoutError:
        pass
    said = log.read_text(errors="replace").strip().splitlines()[-1:] if log is not None else []
    raise ConfigError(f"the registry did not start: {said[0] if said else why}")
