"""A version's pipeline, as its host sees it: a child process that ends with the host, and its last status."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from suiro.foundation import process
from suiro.foundation.files import replace_file
from suiro.views.cpus import apart
from suiro.views.definition import VersionSpec
from suiro.views.pipeline.archive import Code
from suiro.views.pipeline.folder import CODE, LOG, SPEC
from suiro.views.pipeline.progress import Progress

__all__ = ["PipelineProcess", "PipelineStatus", "State"]

State = Literal["starting", "running", "ready", "failed", "ended"]
STOP_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """`is_transient`: what ended it may be over at the next start. `is_of_record`: `error` names a record that cannot
    be processed. `cut`: number of its newest one."""

    state: State = "starting"
    error: str | None = None
    is_transient: bool = False
    is_of_record: bool = False
    progress: Progress | None = None
    cut: int | None = None


class PipelineProcess:
    """Made by `start`. A second one of the same version fences the first."""

    def __init__(self, started: process.Process) -> None:
        self._process = started
        self._status = PipelineStatus()
        self._heard = threading.Thread(target=self._hear, name=f"pipeline-{started.pid}", daemon=True)
        self._heard.start()

    @classmethod
    def start(
        cls,
        spec: VersionSpec,
        *,
        code: bytes,
        folder: Path,
        bootstrap_servers: str,
        client_settings: Mapping[str, str] | None = None,
        nice: int = 0,
    ) -> Self:
        """Returns at once. Into `folder` go spec, code, state and log. `nice`: a lower priority, until it is ready."""
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        Code(code).unpack(folder / CODE)
        replace_file(folder / SPEC, json.dumps(spec.to_json(), indent=1) + "\n", sync=False)
        command = ["nice", "-n", str(nice), sys.executable, "-m", "suiro.views.pipeline.run", str(folder)]
        where = {"bootstrap_servers": bootstrap_servers, "client_settings": dict(client_settings or {})}
        return cls(process.start_command(apart(command), log=folder / LOG, given=where, folder=folder))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def status(self) -> PipelineStatus:
        return self._status

    def stop(self) -> PipelineStatus:
        """Returns when it is gone: after the micro-batch in hand, or by force."""
        if self.is_alive:
            self._process.terminate()
            process.wait_or_kill(self._process, STOP_S)
        return self.kill()

    def kill(self) -> PipelineStatus:
        """With Java, which would go a little later."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._heard.join()
        process.close_pipes(self._process)
        return self._status

    def _hear(self) -> None:
        for event in process.events(self._process):
            self._status = _after(self._status, event)
        code = self._process.wait()
        if self._status.state not in ("failed", "ended"):
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            error = f"the pipeline {how} without a word; its folder has {LOG}"
            # Somebody's kill says nothing about the version: the next start goes on.
            self._status = replace(self._status, state="failed", error=error, is_transient=code < 0)


def _after(status: PipelineStatus, said: Mapping[str, Any]) -> PipelineStatus:
    match said["event"]:
        case "running" | "ready" | "ended" as state:
            return replace(status, state=state)
        case "failed":
            return replace(
                status,
                state="failed",
                error=str(said["error"]),
                is_transient=bool(said["is_transient"]),
                is_of_record=bool(said["is_of_record"]),
            )
        case "progress":
            names = ("done", "total", "rate", "left_s")
            progress = Progress(**{name: said[name] for name in names})
            return replace(status, progress=progress, cut=said["cut"])
        case _:
            return status
