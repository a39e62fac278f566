"""The JVM with Spark that the versions of a host share. It starts for the first version, is restarted when it ends, and
ends with the last version.

A version's pipeline is a process of its own. It joins the JVM when it starts (`suiro.spark.shared_jvm`), and the host
removes it when its process has ended. When the JVM ends, all pipelines end, and join the next one.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from suiro.clock import monotonic_s, sleep_s
from suiro.errors import FatalError
from suiro.foundation import process
from suiro.views.cpus import apart
from suiro.views.pipeline.supervision import FAILURES, Child, ChildStatus, Supervisor

JVM_FOLDER = ".spark"  # beside the folders of views, whose names begin with a letter
JVM_LOG = "spark.log"
LEAVE_S = 60.0
LEFT_S = 5.0
LASTS_S = 60.0
"""A JVM that was ready for so long counts as progress: the next one starts without a delay."""
LOOK_S = 0.1


class JvmProcess(Child):
    """`start` makes it. Thread-safe. `ran_s`: how long it was ready; known once it has ended."""

    name, log = "the process of Spark's JVM", JVM_LOG

    def __init__(self, started: process.Process) -> None:
        self._changed = threading.Condition()  # guards the status, and what follows
        self._answers: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._running_since_s: float | None = None
        self.ran_s = 0.0
        super().__init__(started, ChildStatus())

    @classmethod
    def start(cls, folder: Path, *, settings: Mapping[str, str]) -> Self:
        """Returns at once. `settings`: Spark's. The folder gets its lock and its log."""
        folder.mkdir(parents=True, exist_ok=True)
        command = apart([sys.executable, "-m", "suiro.spark.shared_jvm", str(folder)])
        return cls(
            process.start_command(command, log=folder / JVM_LOG, given={"settings": dict(settings)}, folder=folder)
        )

    @property
    def has_run(self) -> bool:
        """Whether it has ever been ready."""
        return self._running_since_s is not None

    def ask(self, what: str, program: str, **more: Any) -> None:
        """No answer is waited for."""
        with self._changed:
            if not self.status.is_over:
                process.send_line(self._process, json.dumps({"ask": what, "program": program, **more}))

    def answer(
        self, what: str, program: str, answered: str, *, is_over: Callable[[], bool], **more: Any
    ) -> Mapping[str, Any] | None:
        """None where it ended, or where it `is_over` before that."""
        key = answered, program
        with self._changed:
            self._answers.pop(key, None)
        self.ask(what, program, **more)
        with self._changed:
            while not self.status.is_over and key not in self._answers and not is_over():
                self._changed.wait(0.1)
            return self._answers.pop(key, None)

    def wait_for_end(self, timeout_s: float) -> ChildStatus:
        """Its status once it has ended, or after the timeout."""
        self._hearing.join(timeout_s)
        return self.status

    def _hear(self, said: Mapping[str, Any]) -> None:
        with self._changed:
            match said["event"]:
                case "running":
                    self.status = replace(self.status, state="running")
                    self._running_since_s = monotonic_s()
                case "failed":
                    error, is_transient = str(said["error"]), bool(said["is_transient"])
                    self.status = ChildStatus(state="failed", error=error, is_transient=is_transient)
                case answered:
                    self._answers[str(answered), str(said["program"])] = said
            self._changed.notify_all()

    def _note_end(self) -> None:
        self._process.wait()
        with self._changed:
            super()._note_end()
            if self._running_since_s is not None:
                self.ran_s = monotonic_s() - self._running_since_s
            self._changed.notify_all()


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

    def join(
        self, program: str, *, folder: Path, niceness: int, is_over: Callable[[], bool]
    ) -> Mapping[str, Any] | None:
        """Returns what the process of a pipeline needs to join; None if it `is_over` before that. `program`: an
        application id. Raises `FatalError` if the JVM cannot be started, or fails again and again."""
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
        """Returns once none of its queries runs. True: because the JVM has failed, without being killed."""
        with self._lock:
            child = self._joined.pop(program, None)
        if child is None:
            return False
        deadline = monotonic_s() + LEAVE_S
        if child.answer("leave", program, "left", is_over=lambda: monotonic_s() > deadline) is not None:
            return False
        status = child.wait_for_end(LEFT_S)
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
