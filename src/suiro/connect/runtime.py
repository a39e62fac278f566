"""Runs many connectors in one process, one thread each: start, restart with backoff, pause, resume, status.

| state | means | ends by |
|---|---|---|
| RUNNING | its task runs | pause, error |
| RESTARTING | it failed and will restart (`retry_at_ms`) | time, pause, restart |
| FAILED | it failed in a way that a restart cannot fix, such as fenced by another process | restart |
| PAUSED | nothing is open; it continues from its stored position | resume |

An error of one connector does not affect others. A pause lasts until the process ends; `paused = true` in the file
lasts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from suiro.clock import Clock, SystemClock
from suiro.connect.configuration import Configuration, Connector
from suiro.connect.datasets import Report
from suiro.connect.task import Ended, Progress, TaskContext
from suiro.errors import FatalError, SuiroError, UsageError
from suiro.telemetry import Datasets, EventSender, Traces

FIRST_BACKOFF_MS = 500
LONGEST_BACKOFF_MS = 60_000
IS_WELL_MS = 60_000
"""A connector without anything to commit has no error any more when it has run for so long."""

_log = logging.getLogger(__name__)


class UnknownConnectorError(UsageError):
    """There is no connector with this name."""


class Runtime:
    """Runs the connectors of a configuration until `stop`. `lineage` gets their OpenLineage events, `traces` the
    spans of records that sinks take."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        clock: Clock | None = None,
        first_backoff_ms: int = FIRST_BACKOFF_MS,
        lineage: EventSender | None = None,
        traces: Traces | None = None,
        reach: Callable[[str], None] = lambda point: None,
    ) -> None:
        settings = configuration.settings

        def context(name: str, progress: Progress) -> TaskContext:
            return TaskContext(
                name=name,
                bootstrap_servers=settings.bootstrap_servers,
                client_settings=settings.client,
                registry=settings.registry,
                clock=clock or SystemClock(),
                progress=progress,
                traces=traces,
                folder=Path(configuration.folder),
                reach=reach,
            )

        self._supervised = {
            connector.name: _Supervised(connector, context, first_backoff_ms, lineage)
            for connector in configuration.connectors
        }

    def start(self) -> None:
        for supervised in self._supervised.values():
            supervised.start()

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Stops every task. Returns false if one did not stop in time."""
        for supervised in self._supervised.values():
            supervised.close()
        clock = SystemClock()
        ends_ms = clock.monotonic_ms() + int(timeout_s * 1_000)
        ended = [
            supervised.join(max(0.0, (ends_ms - clock.monotonic_ms()) / 1_000))
            for supervised in self._supervised.values()
        ]
        return all(ended)

    def status(self, name: str | None = None) -> list[dict[str, Any]]:
        """Returns the status of all connectors, or of one."""
        chosen = self._supervised.values() if name is None else [self._named(name)]
        return [supervised.status() for supervised in chosen]

    def capture_metrics(self) -> list[tuple[str, Any]]:
        """Returns the names of the captures that have run, and the `CaptureStatus` of each."""
        found = (supervised.progress.capture_metrics for supervised in self._supervised.values())
        return [one for one in found if one is not None]

    def pause(self, name: str) -> None:
        """Returns immediately; the state becomes PAUSED when everything is closed."""
        self._named(name).want(paused=True)

    def resume(self, name: str) -> None:
        self._named(name).want(paused=False)

    def restart(self, name: str) -> None:
        """Restarts it immediately from what is committed, in any state; a paused connector stays paused."""
        self._named(name).restart()

    def _named(self, name: str) -> _Supervised:
        if name not in self._supervised:
            raise UnknownConnectorError(
                f"there is no connector {name!r}; there are {', '.join(sorted(self._supervised))}"
            )
        return self._supervised[name]


class _Supervised:
    """One connector and its thread. The condition guards all fields; the thread holds it only between runs."""

    def __init__(
        self,
        connector: Connector,
        context: Callable[[str, Progress], TaskContext],
        first_backoff_ms: int,
        lineage: EventSender | None,
    ) -> None:
        self._connector = connector
        self._make_context = context
        self._report = Report(lineage, connector.name, connector.side, self._datasets)
        self._first_backoff_ms = first_backoff_ms
        self._backoff_ms = first_backoff_ms
        self.progress = Progress()
        self._changed = threading.Condition()
        self._paused = connector.paused
        self._closing = False
        self._again = False  # start without waiting
        self._context: TaskContext | None = None  # of the current run
        self._state = "PAUSED" if connector.paused else "RUNNING"
        self._error: str | None = None
        self._failed_at = 0  # the number of commits then: the next one ends the error
        self._runs_since_ms = 0
        self._retry_at_ms: int | None = None
        self._retry_ends_ms = 0  # the same by the monotonic clock
        self._restarts = 0
        self._thread = threading.Thread(target=self._work, name=f"connect-{connector.name}", daemon=True)

    # Called by others

    def start(self) -> None:
        self._thread.start()

    def want(self, *, paused: bool) -> None:
        with self._changed:
            self._paused = paused
            self._again = not paused and self._state == "PAUSED"
            self._wake(ends_run=paused)

    def restart(self) -> None:
        with self._changed:
            self._again = True
            self._wake()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._wake()

    def _wake(self, *, ends_run: bool = True) -> None:
        if ends_run and self._context is not None:
            self._context.stopping.set()
        self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def status(self) -> dict[str, Any]:
        with self._changed:
            progress = self.progress
            return {
                "name": self._connector.name,
                "type": self._connector.side,
                "kind": self._connector.kind,
                "state": self._state,
                "records": progress.records,
                "rejected": progress.rejected,
                "commits": progress.commits,
                "lag": progress.lag,
                "offsets": dict(progress.offsets),
                "restarts": self._restarts,
                "error": progress.waits_for or self._lasting_error(),
                "retry_at_ms": self._retry_at_ms,
                "capture": None if progress.capture is None else progress.capture(),
            }

    def _lasting_error(self) -> str | None:
        """Returns the last error, unless the connector has committed since, or runs for a while."""
        runs_for_ms = SystemClock().monotonic_ms() - self._runs_since_ms
        is_over = self.progress.commits != self._failed_at or (self._state == "RUNNING" and runs_for_ms >= IS_WELL_MS)
        return None if is_over else self._error

    def _datasets(self) -> Datasets:
        known = getattr(self._connector.task, "datasets", None)
        if known is None:
            return Datasets()
        found: Datasets = known(self._make_context(self._connector.name, self.progress))
        return found

    # On the thread

    def _work(self) -> None:
        while self._next_run():
            assert self._context is not None
            self._report.begins()
            commits = self.progress.commits
            failure: BaseException | None = None
            try:
                self._connector.task.run(self._context)
            except Ended:
                pass
            except BaseException as error:  # noqa: BLE001 - an error in a user's connector must not end the others
                failure = error
            if self.progress.commits > commits:
                self._backoff_ms = self._first_backoff_ms
            with self._changed:
                self._after(failure)
                if self._state == "FAILED":
                    self._report.ends(failure)
        self._report.ends()

    def _next_run(self) -> bool:
        """Waits for the next run. Returns false after `close`."""
        with self._changed:
            while not self._closing:
                if self._paused:
                    self._state, self._error, self._retry_at_ms = "PAUSED", None, None
                    self._report.ends()
                    self._changed.wait()
                elif self._state == "FAILED" and not self._again:
                    self._changed.wait()
                elif self._state == "RESTARTING" and not self._again and self._waits():
                    continue
                else:
                    self._again = False
                    self._retry_at_ms = None
                    self._state = "RUNNING"
                    self._runs_since_ms = SystemClock().monotonic_ms()
                    self._context = self._make_context(self._connector.name, self.progress)
                    return True
            return False

    def _waits(self) -> bool:
        """Waits for the backoff to end. Returns false if it has ended already."""
        left_ms = self._retry_ends_ms - SystemClock().monotonic_ms()
        if left_ms <= 0:
            return False
        self._changed.wait(left_ms / 1000)
        return True

    def _after(self, failure: BaseException | None) -> None:
        context, self._context = self._context, None
        if failure is None:
            self._error = None
            return
        if context is not None and context.stopping.is_set():
            _log.info("%s: while it was being stopped: %s", self._connector.name, failure)
            return
        self._error = f"{type(failure).__name__}: {failure}"
        self._failed_at = self.progress.commits
        self._restarts += 1
        if isinstance(failure, FatalError):
            self._state = "FAILED"
            _log.error("%s failed and stays so until it is restarted: %s", self._connector.name, self._error)
            return
        self._state = "RESTARTING"
        self._retry_at_ms = SystemClock().wall_ms() + self._backoff_ms
        self._retry_ends_ms = SystemClock().monotonic_ms() + self._backoff_ms
        _log.warning(
            "%s failed and restarts in %d ms: %s",
            self._connector.name,
            self._backoff_ms,
            self._error,
            exc_info=None if isinstance(failure, SuiroError) else failure,
        )
        self._backoff_ms = min(self._backoff_ms * 2, LONGEST_BACKOFF_MS)
