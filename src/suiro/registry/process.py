"""`suiro registry` as a child process of one's own. Light to import: no web server is loaded here."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from suiro.errors import ConfigError
from suiro.foundation.beside import close_pipes, start_child, stop_child

__all__ = ["RegistryProcess"]

START_TIMEOUT_S = 60.0


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
            process = start_child(
                ["registry", "--bootstrap", bootstrap_servers, "--listen", listen, *options],
                stdout=subprocess.PIPE,
                stderr=stderr,
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
        close_pipes(self._process)

    def stop(self) -> int:
        """Stop cleanly; returns the exit code."""
        return stop_child(self._process)

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
