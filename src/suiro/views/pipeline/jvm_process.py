"""The process of the JVM that versions share (`suiro.spark.shared_jvm`), for the host."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from suiro.clock import monotonic_s
from suiro.foundation import process
from suiro.views.cpus import apart

JVM_LOG = "spark.log"
STOP_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmStatus:
    """`is_transient`: somebody killed it, so the error does not concern the versions in it."""

    state: Literal["starting", "running", "failed"] = "starting"
    error: str | None = None
    is_transient: bool = False
    is_of_record: bool = False


class JvmProcess:
    """`start` makes it. Thread-safe."""

    def __init__(self, started: process.Process) -> None:
        self._process = started
        self._changed = threading.Condition()  # guards what follows
        self._status = JvmStatus()
        self._answers: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._is_over = False
        self._running_since_s: float | None = None
        self._ran_s = 0.0
        self._heard = threading.Thread(target=self._hear, name=f"jvm-{started.pid}", daemon=True)
        self._heard.start()

    @classmethod
    def start(cls, folder: Path, *, settings: Mapping[str, str]) -> Self:
        """Returns at once. `settings`: Spark's. The folder gets its lock and its log."""
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "suiro.spark.shared_jvm", str(folder)]
        return cls(
            process.start_command(
                apart(command), log=folder / JVM_LOG, given={"settings": dict(settings)}, folder=folder
            )
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def status(self) -> JvmStatus:
        with self._changed:
            return self._status

    @property
    def has_run(self) -> bool:
        """Whether it has ever been ready."""
        with self._changed:
            return self._running_since_s is not None

    @property
    def ran_s(self) -> float:
        """How long it was ready; known once it has ended."""
        with self._changed:
            return self._ran_s

    def ask(self, what: str, program: str, **more: Any) -> None:
        """No answer is waited for."""
        with self._changed:
            if not self._is_over:
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
            while not self._is_over and key not in self._answers and not is_over():
                self._changed.wait(0.1)
            return self._answers.pop(key, None)

    def wait_for_end(self, timeout_s: float) -> JvmStatus:
        """Its status once it has ended, or after the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over, timeout_s)
            return self._status

    def stop(self) -> None:
        """Returns when it is gone, and the JVM with it."""
        if self.is_alive:
            self._process.terminate()
            process.wait_or_kill(self._process, STOP_S)
        process.kill_group(self._process)
        self._heard.join()
        process.close_pipes(self._process)

    def _hear(self) -> None:
        for said in process.events(self._process):
            with self._changed:
                match said["event"]:
                    case "running":
                        self._status = replace(self._status, state="running")
                        self._running_since_s = monotonic_s()
                    case "failed":
                        error, is_transient = str(said["error"]), bool(said["is_transient"])
                        self._status = JvmStatus(state="failed", error=error, is_transient=is_transient)
                    case answered:
                        self._answers[str(answered), str(said["program"])] = said
                self._changed.notify_all()
        code = self._process.wait()
        with self._changed:
            if self._status.state != "failed":
                error = f"the process of Spark's JVM {process.end_of(code)} without a word; {JVM_LOG} says more"
                self._status = JvmStatus(state="failed", error=error, is_transient=code < 0)
            if self._running_since_s is not None:
                self._ran_s = monotonic_s() - self._running_since_s
            self._is_over = True
            self._changed.notify_all()
