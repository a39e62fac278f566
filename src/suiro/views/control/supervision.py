"""Keeps one child process running: starts it again whenever it ends, after longer and longer pauses without progress.

`progress()` is called before each start and after each end; if its value changed, the child has made progress. After
`FAILURES` ends in a row without progress, `gave_up` is called, once, and decides whether the child is started again. If
all of them failed at the same record, the child is not started again in any case, because the next start would fail,
too: its state is "failed". An end that the child itself calls transient (its Kafka is away) does not count, nor a start
for which the disk has no room.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from suiro.clock import monotonic_s
from suiro.foundation.files import is_of_the_disk
from suiro.foundation.process import Backoff

FAILURES = 3
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
POLL_S = 0.1
END_S = 10.0
"""The wait for the end of a child that has said that it ended. After that, it is stopped."""

logger = logging.getLogger(__name__)


class ChildStatus(Protocol):
    @property
    def state(self) -> str: ...
    @property
    def error(self) -> str | None: ...
    @property
    def is_transient(self) -> bool: ...
    @property
    def is_of_record(self) -> bool: ...


class Child(Protocol):
    """A started process, such as `suiro.views.pipeline.process.PipelineProcess`."""

    @property
    def pid(self) -> int: ...
    @property
    def is_alive(self) -> bool: ...
    @property
    def status(self) -> ChildStatus: ...
    def stop(self) -> object: ...


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
    ) -> None:
        self.name = name
        self._start = start
        self._progress = progress
        self._gave_up = gave_up
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
        """`error`: why the child ended the last time, until it runs again."""
        with self._lock:
            child, error, starts, is_given_up = self._child, self._error, self._starts, self._is_given_up
        is_alive = child is not None and child.is_alive
        state = child.status.state if child is not None else "starting"
        return {
            "pid": child.pid if is_alive and child is not None else None,
            "state": state if is_alive or is_given_up else "restarting" if starts else "starting",
            "restarts": max(0, starts - 1),
            "error": None if is_alive and state in ("running", "ready") else error,
        }

    def stop(self) -> None:
        """Returns once the child is gone. It may be called again, and from `gave_up`."""
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _keep(self) -> None:
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
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
                backoff.reset()
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
            logger.error("%s ended: %s; it is started again in %g s", self.name, error, backoff.pause_s)
            backoff.wait(self._stopping)

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
            return str(error), not is_of_the_disk(error), False
        with self._lock:
            self._child = child
        ends_s: float | None = None
        while child.is_alive and (ends_s is None or monotonic_s() < ends_s):
            if self._stopping.wait(POLL_S):
                child.stop()
                return "stopped", False, False
            if ends_s is None and child.status.state in ("failed", "ended"):
                # Its process may wait at its end for Java, or for a thread of the user's code.
                ends_s = monotonic_s() + END_S
        child.stop()  # also ends what it left behind, and reads its last event
        status = child.status
        why = status.error or "it ended without a word; its log says more"
        with self._lock:
            self._error = why
        return why, not status.is_transient, status.is_of_record
