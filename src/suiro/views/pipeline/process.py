"""A version's pipeline in the host: a child process that ends with the host, and its last status.

It has a JVM of its own, or shares one (`Jvm`). Once it may join a shared JVM, a second line of its standard input says
how to reach the JVM. When its process has ended, for whatever reason, it leaves the JVM.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from suiro.errors import SuiroError
from suiro.foundation import process
from suiro.foundation.files import replace_file
from suiro.views.cpus import apart
from suiro.views.definition import VersionSpec
from suiro.views.pipeline.archive import Code
from suiro.views.pipeline.folder import CODE, LOG, SPEC
from suiro.views.pipeline.progress import Progress

State = Literal["starting", "running", "ready", "failed", "ended"]
STOP_S = 30.0
END_S = 5.0
"""The wait for the last event of a child that has ended. What its code has forked into a session of its own still has
the pipe of the events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """`is_transient`: the next start may succeed. `is_of_record`: `error` names a record that cannot be processed.
    `has_lost_jvm`: the shared JVM has ended. `cut`: the number of the newest cut."""

    state: State = "starting"
    error: str | None = None
    is_transient: bool = False
    is_of_record: bool = False
    has_lost_jvm: bool = False
    progress: Progress | None = None
    cut: int | None = None


class Jvm(Protocol):
    """One JVM with Spark for several versions. `program`: an application id."""

    def join(
        self, program: str, *, folder: Path, niceness: int, is_over: Callable[[], bool]
    ) -> Mapping[str, Any] | None:
        """Returns what the pipeline's process needs to join; None if it `is_over` before that."""

    def leave(self, program: str) -> bool:
        """Returns once none of its queries runs. True: because the JVM has failed, without being killed."""

    def set_niceness(self, program: str, niceness: int) -> None: ...


class PipelineProcess:
    """`start` makes it. A second process of the same version fences the first. `jvm`: the shared one; `program`: its
    name there."""

    def __init__(self, started: process.Process, *, jvm: Jvm | None = None, program: str = "") -> None:
        self._process = started
        self._jvm = jvm
        self._program = program
        self._joining: threading.Thread | None = None
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
        jvm: Jvm | None = None,
    ) -> Self:
        """Returns at once. `folder` gets spec, code, state and log. `nice`: the lower priority until it is ready.
        `jvm`: None if it has its own."""
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        Code(code).unpack(folder / CODE)
        # Its settings may have passwords.
        replace_file(folder / SPEC, json.dumps(spec.to_json(), indent=1) + "\n", sync=False, mode=0o600)
        command = ["nice", "-n", str(nice), sys.executable, "-m", "suiro.views.pipeline.run", str(folder)]
        where = {
            "bootstrap_servers": bootstrap_servers,
            "client_settings": dict(client_settings or {}),
            "shares_jvm": jvm is not None,
        }
        started = process.start_command(apart(command), log=folder / LOG, given=where, folder=folder)
        made = cls(started, jvm=jvm, program=spec.application_id)
        if jvm is not None:
            made._join(jvm, folder, nice)
        return made

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
        """Ends it after the current micro-batch, or kills it after `STOP_S`. Returns when it is gone."""
        if self.is_alive:
            self._process.terminate()
            process.wait_or_kill(self._process, STOP_S)
        return self.kill()

    def kill(self) -> PipelineStatus:
        """Kills it with its Java process, which would end later by itself; in a shared JVM, with its queries."""
        process.kill_group(self._process)
        self._heard.join(END_S)
        self._note_end()
        if self._joining is not None:
            self._joining.join()
        if self._jvm is not None and self._jvm.leave(self._program) and self._status.has_lost_jvm:
            self._status = replace(self._status, is_transient=False)
        if not self._heard.is_alive():  # or the close would wait for it
            process.close_pipes(self._process)
        return self._status

    def _join(self, jvm: Jvm, folder: Path, niceness: int) -> None:
        def join() -> None:
            is_over = lambda: not self.is_alive  # noqa: E731
            try:
                told = jvm.join(self._program, folder=folder, niceness=niceness, is_over=is_over)
            except SuiroError as error:
                told = {"error": str(error)}
            if told is not None:
                process.send_line(self._process, json.dumps(told))

        self._joining = threading.Thread(target=join, name=f"join-{self._program}", daemon=True)
        self._joining.start()

    def _hear(self) -> None:
        for event in process.events(self._process):
            self._status = _after(self._status, event)
            if event["event"] == "ready" and self._jvm is not None:
                self._jvm.set_niceness(self._program, 0)
        self._note_end()

    def _note_end(self) -> None:
        code = self._process.wait()
        if self._status.state not in ("failed", "ended"):
            error = f"the pipeline {process.end_of(code)} without a word; its folder has {LOG}"
            # A kill is no fault of the version, and the next start continues.
            self._status = replace(self._status, state="failed", error=error, is_transient=code < 0)


def _after(status: PipelineStatus, said: Mapping[str, Any]) -> PipelineStatus:
    match said["event"]:
        case "running" | "ready" | "ended" as state:
            return replace(status, state=state)
        case "failed":
            names = ("error", "is_transient", "is_of_record", "has_lost_jvm")
            return replace(status, state="failed", **{name: said[name] for name in names})
        case "progress":
            names = ("done", "total", "rate", "left_s")
            progress = Progress(**{name: said[name] for name in names})
            return replace(status, progress=progress, cut=said["cut"])
        case _:
            return status
