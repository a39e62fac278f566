"""The life of a run in OpenLineage: START, RUNNING on an interval, and one end.

A run is one start of a process. Where a run has a file, its id is kept there until the target has the end event. The
next start ends a run that was killed: it sends ABORT for the id that it finds. So each run gets an end at last, and in
rare cases two of them (killed between the delivery and the removal of the file).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self
from uuid import UUID

from suiro.clock import SystemClock
from suiro.telemetry.openlineage import Datasets, EventType, Job, encode_event, new_run_id
from suiro.telemetry.sending import EventSender

INTERVAL_S = 60.0
FIRST_S = 5.0
"""When the first RUNNING comes: some datasets are known only once the work has begun."""

_log = logging.getLogger(__name__)


def job_namespace() -> str:
    """As all users of OpenLineage name it."""
    return os.environ.get("OPENLINEAGE_NAMESPACE") or "default"


class LineageRun:
    """Sends START when it is made; in a `with`, its end is that of the block. `datasets` is called for each event, on
    the sender's thread: it may ask a registry. `failure`: what ended the work, asked on the interval. The first end
    wins, and further ones do nothing."""

    def __init__(
        self,
        sender: EventSender,
        job: Job,
        datasets: Callable[[], Datasets],
        *,
        file: Path | None = None,
        failure: Callable[[], BaseException | None] = lambda: None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._sender = sender
        self._job = job
        self._datasets = datasets
        self._file = file
        self._failure = failure
        self._clock = SystemClock()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.run_id = new_run_id(self._clock.wall_ms())
        self._end_of_killed()
        self._put("START")
        self._thread = threading.Thread(target=self._report, args=(interval_s,), name="telemetry-run", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end("COMPLETE" if error is None else "FAIL", error)

    def complete(self) -> None:
        self._end("COMPLETE")

    def abort(self) -> None:
        self._end("ABORT")

    def fail(self, error: BaseException) -> None:
        self._end("FAIL", error)

    def _report(self, interval_s: float) -> None:
        pause_s = min(FIRST_S, interval_s)
        while not self._ended.wait(pause_s):
            pause_s = interval_s
            failure = self._failure()
            if failure is not None:
                self.fail(failure)
                return
            with self._lock:
                if not self._ended.is_set():
                    self._put("RUNNING")

    def _end(self, kind: EventType, error: BaseException | None = None) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            self._ended.set()
            self._put(kind, error=error, sent=self._forget)

    def _put(
        self, kind: EventType, *, error: BaseException | None = None, sent: Callable[[], None] | None = None
    ) -> None:
        make = partial(self._event, kind, self.run_id, self._clock.wall_ms(), error)
        self._sender.put(make, replaces=self.run_id if kind == "RUNNING" else None, sent=sent)

    def _event(self, kind: EventType, run_id: str, at_ms: int, error: BaseException | None) -> bytes:
        return encode_event(kind, self._job, run_id, at_ms, self._datasets(), error=error)

    def _end_of_killed(self) -> None:
        if self._file is None:
            return
        try:
            found = self._file.read_text("ascii")[:64].strip() if self._file.exists() else ""
            self._file.write_text(f"{self.run_id}\n", "ascii")
        except (OSError, ValueError) as error:
            _log.warning("%s: the run's id cannot be kept there: %s", self._file, error)
            return
        try:
            killed = str(UUID(found))
        except ValueError:
            return
        self._sender.put(partial(self._event, "ABORT", killed, self._clock.wall_ms(), None))

    def _forget(self) -> None:
        if self._file is not None:
            try:
                self._file.unlink(missing_ok=True)
            except OSError as error:
                _log.warning("%s: cannot be removed: %s", self._file, error)
