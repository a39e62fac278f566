"""A version's pipeline in the host: a child process that ends with the host, and its last status.

It has a JVM of its own, or shares one (`shared_jvm`). Once it may join a shared JVM, a second line of its standard
input says how to reach the JVM. When its process has ended, for whatever reason, it leaves the JVM.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from suiro.errors import SuiroError
from suiro.foundation import process
from suiro.foundation.files import replace_file
from suiro.views.cpus import apart
from suiro.views.definition import VersionSpec
from suiro.views.pipeline import CODE, LOG, SPEC
from suiro.views.pipeline.archive import Code
from suiro.views.pipeline.progress import Progress
from suiro.views.pipeline.shared_jvm import SharedJvm
from suiro.views.pipeline.supervision import Child, ChildStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus(ChildStatus):
    """`has_lost_jvm`: the shared JVM has ended. `cut`: the number of the newest cut."""

    has_lost_jvm: bool = False
    progress: Progress | None = None
    cut: int | None = None


class PipelineProcess(Child):
    """`start` makes it. A second process of the same version fences the first. `jvm`: the shared one; `program`: its
    name there."""

    name, log = "the pipeline", LOG
    status: PipelineStatus

    def __init__(self, started: process.Process, *, jvm: SharedJvm | None = None, program: str = "") -> None:
        self._jvm = jvm
        self._program = program
        self._joining: threading.Thread | None = None
        super().__init__(started, PipelineStatus())

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
        jvm: SharedJvm | None = None,
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

    def kill(self) -> ChildStatus:
        """In a shared JVM, also ends its queries."""
        process.kill_group(self._process)
        if self._joining is not None:
            self._joining.join()
        super().kill()
        if self._jvm is not None and self._jvm.leave(self._program) and self.status.has_lost_jvm:
            self.status = replace(self.status, is_transient=False)
        return self.status

    def _join(self, jvm: SharedJvm, folder: Path, niceness: int) -> None:
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

    def _hear(self, said: Mapping[str, Any]) -> None:
        match said["event"]:
            case "running" | "ready" | "ended" as state:
                self.status = replace(self.status, state=state)
                if state == "ready" and self._jvm is not None:
                    self._jvm.set_niceness(self._program, 0)
            case "failed":
                names = ("error", "is_transient", "is_of_record", "has_lost_jvm")
                self.status = replace(self.status, state="failed", **{name: said[name] for name in names})
            case "progress":
                self.status = replace(self.status, progress=Progress(**said["progress"]), cut=said["cut"])
