"""The JVM with Spark that the versions of a host share. It starts for the first version, is restarted when it ends, and
ends with the last version.

A version's pipeline is a process of its own. It joins the JVM when it starts (`suiro.spark.shared_jvm`), and the host
removes it when its process has ended. When the JVM ends, all pipelines end, and join the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from suiro.clock import monotonic_s, sleep_s
from suiro.errors import FatalError
from suiro.foundation import process
from suiro.views.control.supervision import FAILURES, Supervisor
from suiro.views.pipeline.jvm_process import JVM_LOG, JvmProcess

JVM_FOLDER = ".spark"  # beside the folders of views, whose names begin with a letter
LEAVE_S = 60.0
END_S = 5.0
LASTS_S = 60.0
"""A JVM that was ready for so long counts as progress: the next one starts without a delay."""
LOOK_S = 0.1


class SharedJvm:
    """Thread-safe. `settings`: Spark's settings of the whole JVM."""

    def __init__(self, data: Path, *, settings: Mapping[str, str]) -> None:
        self._folder = data / JVM_FOLDER
        self._settings = dict(settings)
        self._lock = threading.Lock()  # guards what follows
        self._users = 0
        self._supervisor: Supervisor[JvmProcess] | None = None
        self._joined: dict[str, JvmProcess] = {}

    def enter(self) -> None:
        """Starts the JVM for the first user. A program may join from now on, until `exit`."""
        with self._lock:
            if self._supervisor is None:
                self._supervisor = Supervisor(
                    "Spark's JVM",
                    lambda: JvmProcess.start(self._folder, settings=self._settings),
                    progress=self._lasted,
                    gave_up=lambda error: True,
                )
            self._users += 1

    def exit(self, program: str, folder: Path) -> None:
        """Ends the use by a program. If it was the last one, returns once the JVM is gone."""
        child = self._child()
        with self._lock:
            self._users -= 1
            supervisor, is_last = self._supervisor, not self._users
            if is_last:
                self._supervisor = None
        if is_last and supervisor is not None:
            supervisor.stop()
        elif child is not None:
            child.ask("forget", program, folder=str(folder))

    def status(self) -> dict[str, Any] | None:
        """Returns None while nobody uses it."""
        with self._lock:
            supervisor = self._supervisor
        return None if supervisor is None else supervisor.status() | {"log": str(self._folder / JVM_LOG)}

    def limit_log(self) -> None:
        process.limit_log(self._folder / JVM_LOG)

    # What pipelines ask: `suiro.views.pipeline.process.Jvm`

    def join(
        self, program: str, *, folder: Path, niceness: int, is_over: Callable[[], bool]
    ) -> Mapping[str, Any] | None:
        """Raises `FatalError` if the JVM cannot be started, or fails again and again."""
        # One that has failed already takes a moment to end, and the next one may work.
        before = self._child()
        if before is not None and before.is_alive and before.status.state != "failed":
            before = None
        failed = set[int]()
        while not is_over():
            child = self._child()
            if child is not None and child is not before:
                status = child.status
                found = None
                if status.state == "running":
                    asked = {"folder": str(folder), "niceness": niceness}
                    found = child.answer("join", program, "joined", is_over=is_over, **asked)
                if found is not None:
                    with self._lock:
                        self._joined[program] = child
                    return {"port": found["port"], "secret": found["secret"]}
                if status.state == "failed" and not status.is_transient:
                    failed.add(child.pid)
                    if not child.has_run or len(failed) == FAILURES:
                        raise FatalError(f"Spark's JVM has failed: {status.error}; {self._folder / JVM_LOG} says more")
            sleep_s(LOOK_S)
        return None

    def leave(self, program: str) -> bool:
        with self._lock:
            child = self._joined.pop(program, None)
        if child is None:
            return False
        deadline = monotonic_s() + LEAVE_S
        if child.answer("leave", program, "left", is_over=lambda: monotonic_s() > deadline) is not None:
            return False
        status = child.wait_for_end(END_S)
        return status.state == "failed" and not status.is_transient

    def set_niceness(self, program: str, niceness: int) -> None:
        with self._lock:
            child = self._joined.get(program)
        if child is not None:
            child.ask("niceness", program, niceness=niceness)

    def _child(self) -> JvmProcess | None:
        with self._lock:
            supervisor = self._supervisor
        return None if supervisor is None else supervisor.child

    def _lasted(self) -> object:
        child = self._child()
        return child.pid if child is not None and child.ran_s >= LASTS_S else None
