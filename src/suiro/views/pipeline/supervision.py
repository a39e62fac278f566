"""A child process of a host, which ends with the host, and the supervisor that keeps one running.

The supervisor starts the child again whenever it ends, after longer and longer pauses without progress. `progress()` is
called before each start and after each end; if its value changed, the child has made progress. After `FAILURES` ends in
a row without progress, `gave_up` is called, once, and decides whether the child is started again. If all of them failed
at the same record, the child is not started again in any case, because the next start would fail, too: its state is
"failed". An end that the child itself calls transient (its Kafka is away) does not count, nor a start for which the
machine has no room.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, TypeVar

from suiro.clock import monotonic_s
from suiro.foundation import process
from suiro.foundation.files import is_of_the_disk

FAILURES = 3
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
POLL_S = 0.1
END_S = 10.0
"""The wait for the end of a child that has said that it ended. After that, it is stopped."""
LAST_EVENT_S = 5.0
"""The wait for the last event of a child that has ended. What its code has forked into a session of its own still has
the pipe of the events."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStatus:
    """`is_transient`: the next start may succeed. `is_of_record`: `error` names a record that cannot be processed."""

    state: Literal["starting", "running", "ready", "failed", "ended"] = "starting"
    error: str | None = None
    is_transient: bool = False
    is_of_record: bool = False

    @property
    def is_over(self) -> bool:
        return self.state in ("failed", "ended")


class Child(ABC):
    """A started process. Its events change `status`."""

    name: ClassVar[str]
    log: ClassVar[str]
    stop_s: ClassVar[float] = 30.0
    """The wait for its end, once it was asked to end. After that, it is killed."""

    def __init__(self, started: process.Process, status: ChildStatus) -> None:
        self.status = status
        self._process = started
        self._hearing = threading.Thread(target=self._hear_all, name=f"child-{started.pid}", daemon=True)
        try:
            self._hearing.start()
        except RuntimeError:  # as many threads as there may be
            process.kill_group(started)
            process.close_pipes(started)
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> ChildStatus:
        """Returns when it is gone."""
        if self.is_alive:
            self._process.terminate()
            process.wait_or_kill(self._process, self.stop_s)
        return self.kill()

    def kill(self) -> ChildStatus:
        """Kills it with what it has started, such as Java, which would end later by itself."""
        process.kill_group(self._process)
        self._hearing.join(LAST_EVENT_S)
        self._note_end()
        if not self._hearing.is_alive():  # or the close would wait for it
            process.close_pipes(self._process)
        return self.status

    @abstractmethod
    def _hear(self, said: Mapping[str, Any]) -> None:
        """Takes an event, on a thread of its own."""

    def _hear_all(self) -> None:
        for event in process.events(self._process):
            self._hear(event)
        self._note_end()

    def _note_end(self) -> None:
        code = self._process.wait()
        if self.status.is_over:
            return
        if self.status.error is not None:
            self.status = replace(self.status, state="failed")
            return
        error = f"{self.name} {process.end_of(code)} without a word; {self.log} says more"
        # A kill is no fault of the version, and the next start continues.
        self.status = replace(self.status, state="failed", error=error, is_transient=code < 0)


C = TypeVar("C", bound=Child)


class Supervisor(Generic[C]):
    """Runs until `stop`. `start` returns a child that runs, or raises an error. `gave_up(error)` is called on the
    supervisor's thread, and returns whether to start the child again."""

    def __init__(
        self,
        name: str,
        start: Callable[[], C],
        *,
        progress: Callable[[], object],
        gave_up: Callable[[str], bool],
        backoff: process.Backoff | None = None,
    ) -> None:
        self.name = name
        self._start = start
        self._progress = progress
        self._gave_up = gave_up
        self._backoff = backoff or process.Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._child: C | None = None
        self._error: str | None = None
        self._is_given_up = False
        self._starts = 0
        self._thread = threading.Thread(target=self._keep, name=f"supervisor-{name}", daemon=True)
        self._thread.start()

    @property
    def child(self) -> C | None:
        """The child that runs, or ran last."""
        with self._lock:
            return self._child

    def status(self) -> dict[str, Any]:
        """`error`: why the child ended the last time, or cannot go on, until it runs again."""
        with self._lock:
            child, error, starts, is_given_up = self._child, self._error, self._starts, self._is_given_up
        is_alive = child is not None and child.is_alive
        status = ChildStatus() if child is None else child.status
        if is_alive:
            error = None if status.state in ("running", "ready") else status.error or error
        return {
            "pid": child.pid if is_alive and child is not None else None,
            "state": status.state if is_alive or is_given_up else "restarting" if starts else "starting",
            "restarts": max(0, starts - 1),
            "error": error,
        }

    def stop(self) -> None:
        """Returns once the child is gone. It may be called again, and from `gave_up`."""
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _keep(self) -> None:
        failures = at_record = 0  # in a row without progress; in a row at the same record
        error = ""
        while not self._stopping.is_set():
            before = self._progress()
            error_before = error
            error, counts, is_of_record = self._run_once()
            if self._stopping.is_set():
                return
            if self._progress() != before:
                failures = at_record = 0
                self._backoff.reset()
            failures += counts
            at_record = 0 if not is_of_record else at_record + 1 if error == error_before else 1
            is_given_up = counts and failures == FAILURES and not self._gave_up(error)
            if is_given_up or at_record == FAILURES:
                with self._lock:
                    self._is_given_up = True
                    if not is_given_up:
                        self._error = f"{error}; it failed {FAILURES} times, and is down until the host restarts"
                logger.error("%s failed %d times and is not started again: %s", self.name, FAILURES, error)
                return
            logger.error("%s ended: %s; it is started again in %g s", self.name, error, self._backoff.pause_s)
            self._backoff.wait(self._stopping)

    def _run_once(self) -> tuple[str, bool, bool]:
        """Starts the child and waits for its end. Returns why it ended, whether that counts as a failure, and whether
        the error names a record."""
        with self._lock:
            self._starts += 1
        try:
            child = self._start()
        except Exception as error:  # noqa: BLE001 - the status has it, and the start is repeated
            with self._lock:
                self._error = str(error)
            return str(error), not _is_no_room(error), False
        with self._lock:
            self._child = child
        ends_s: float | None = None
        while child.is_alive and (ends_s is None or monotonic_s() < ends_s):
            if self._stopping.wait(POLL_S):
                child.stop()
                return "stopped", False, False
            if ends_s is None and child.status.is_over:
                # Its process may wait at its end for Java, or for a thread of the user's code.
                ends_s = monotonic_s() + END_S
        child.stop()  # also ends what it left behind, and reads its last event
        status = child.status
        why = status.error or "it ended without a word; its log says more"
        with self._lock:
            self._error = why
        return why, not status.is_transient, status.is_of_record


def _is_no_room(error: Exception) -> bool:
    """Whether the disk is full, or the machine has as many processes, threads or open files as it may have."""
    if isinstance(error, PermissionError | FileNotFoundError):
        return False
    return is_of_the_disk(error) or isinstance(error, OSError | RuntimeError)
