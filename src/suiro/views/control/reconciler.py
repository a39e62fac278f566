"""Reconciles one view with the journal: starts and stops versions, marks them ready, continues a rollout.

One thread per view compares the decided state with the actual state, again and again. So a host that was killed at any
point completes interrupted work after a restart. The reconciler's own decisions go through the journal, by the same
rules as a command, and have the name "host".
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from suiro.clock import Clock
from suiro.errors import SuiroError, TransientError
from suiro.foundation.process import Backoff
from suiro.views.control import lifecycle, rollback_conditions
from suiro.views.control.journal import Journal
from suiro.views.control.running import HostEnvironment, LocationTakenError, RunningVersion, free
from suiro.views.definition import VersionSpec
from suiro.views.pipeline.pace import Pace, ask_throttle, read_throttle
from suiro.views.pipeline.progress import InputLag, SeenCuts, lag_of
from suiro.views.pipeline.supervision import FAILURES
from suiro.views.state import (
    NO_CONDITIONS,
    RefusedChangeError,
    RollbackConditions,
    Version,
    View,
    position_of,
)
from suiro.views.store.rows import StoreBrokenError

WHO = "host"
TICK_S = 0.2
WINDOW_MS = 60_000
"""The window of rollback conditions, so that days of good reads do not hide a minute of bad ones."""
LOOKS_EVERY_MS = 5_000
LIMIT_LOGS_MS = 10_000
FREE_AGAIN_MS = 10_000
"""The pause after a failed attempt."""
LAG_LASTS_MS = 10_000
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
BEGIN_AGAIN_MS = 1_000
LASTING = (LocationTakenError, StoreBrokenError, PermissionError)
"""Errors that a person must end. A version that is being built fails at the third in a row, as it does at those of its
processes. After these errors, the pause is `BEGIN_AGAIN_MS`."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _CurrentShare:
    """The current share of the callers, since when, and snapshots of the candidate's reads, the oldest first."""

    revision: int
    since_ms: int
    looks: deque[tuple[int, Any]]
    difference: float | None = None
    is_comparing: bool = False
    pauses: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S))
    error: str | None = None  # why the difference is not known yet
    over: threading.Event = field(default_factory=threading.Event)  # set when the share has changed
    sample: rollback_conditions.Sample | None = None  # the last that was evaluated

    def window(self, now_ms: int, reads: Any) -> Any:
        """Returns the reads at the beginning of the window: when the share began, or `WINDOW_MS` ago."""
        if now_ms - self.looks[-1][0] >= LOOKS_EVERY_MS:
            self.looks.append((now_ms, reads))
        while len(self.looks) > 1 and now_ms - self.looks[1][0] >= WINDOW_MS:
            self.looks.popleft()
        return self.looks[0][1]


@dataclass(slots=True)
class _Tended:
    """The actual state of a version. `error`: why it cannot be opened, or freed. `failures`: how often in a row that
    was a lasting error. `failed`: why it was given up, which could not be noted yet. `again_ms`: when to
    try again to open it, or to free it. `lag`: the last that was read, and when."""

    running: RunningVersion | None = None
    error: str | None = None
    failures: int = 0
    again_ms: int = 0
    failed: str | None = None
    seen_cuts: SeenCuts = field(default_factory=SeenCuts)
    input_lag: InputLag | None = None
    pace: Pace | None = None
    lag: tuple[int, int | None] = (0, None)


class Reconciler:
    """`compare(view, old, new, over)` returns the share of rows that differ. A separate thread calls it. It may raise
    an error as soon as `over` is set."""

    def __init__(
        self,
        name: str,
        journal: Journal,
        environment: HostEnvironment,
        *,
        clock: Clock,
        compare: Callable[[str, int, int, threading.Event], float],
    ) -> None:
        self.name = name
        self.has_tried = threading.Event()  # set once each version is open, or could not be opened
        self._journal = journal
        self._environment = environment
        self._clock = clock
        self._compare = compare
        self._versions: dict[int, _Tended] = {}
        self._limit_logs_ms = 0
        self._held: _CurrentShare | None = None
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"view-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        ending = [threading.Thread(target=one.stop) for one in self._all_running()]
        self._versions.clear()
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()

    def running(self, number: int) -> RunningVersion | None:
        known = self._versions.get(number)
        return None if known is None else known.running

    def error(self, number: int) -> str | None:
        """Returns why this version cannot be opened, None if it can, or was not tried yet."""
        known = self._versions.get(number)
        return None if known is None else known.error

    def lag_ms(self, number: int, *, reads: bool = True) -> int | None:
        """Returns for how long this version has lacked something that the serving one has, None if unknown. `reads`:
        read the serving version's store, whose database may not answer; False: the lag that was read last."""
        serving = self._journal.view(self.name).routing.serving
        if serving == number:
            return 0
        one, other = self.running(number), self.running(serving or 0)
        if one is None or other is None:
            return None
        if other.cut is None or (one.cut is not None and one.cut.covers(other.cut)):
            return 0
        now_ms, known = self._clock.monotonic_ms(), self._known(number)
        if not reads:
            read_ms, lag_ms = known.lag
            return lag_ms if now_ms - read_ms <= LAG_LASTS_MS else None
        seen = self._known(other.spec.version).seen_cuts
        lag_ms = lag_of(
            one.cut,
            other.store.newest_cuts(),
            self._clock.wall_ms(),
            age_ms=lambda cut: seen.age_ms(cut, now_ms),
        )
        known.lag = now_ms, lag_ms
        return lag_ms

    def status(self, *, reads_lag: bool = True) -> dict[str, Any]:
        view = self._journal.view(self.name)
        routing = view.to_json()["routing"]
        held = self._held
        if held is not None and view.routing.guide is not None:
            routing["guide"]["held_ms"] = self._clock.monotonic_ms() - held.since_ms
        sample = None if held is None else held.sample
        return {
            "view": self.name,
            "revision": view.revision,
            "position": position_of(view),
            "routing": routing,
            "sample": None if sample is None else asdict(sample),
            "guard_error": None if held is None else held.error,
            "versions": [self._status_of(version, reads_lag) for version in view.versions],
        }

    def _status_of(self, version: Version, reads_lag: bool) -> dict[str, Any]:
        said: dict[str, Any] = {
            "version": version.number,
            "state": version.state,
            "error": version.error,
            **{name: version.spec.get(name) for name in ("fingerprint", "entry", "inputs", "output_topic")},
            "key": list(version.key),
        }
        known = self._versions.get(version.number) or _Tended()
        running, input_lag, pace = known.running, known.input_lag, known.pace
        if version.state == "retired":
            return said | {"error": known.error}  # why its data is still there
        if running is None:
            return said | {"error": version.error or known.error}
        cut, pipeline, jvm = running.cut, running.pipeline.status(), running.jvm and running.jvm.status()
        status = running.pipeline_status
        progress = None if status is None else status.progress
        return said | {
            "cut": None if cut is None else cut.number,
            "cut_time_ms": None if cut is None else cut.time_ms,
            "lag_ms": self.lag_ms(version.number, reads=reads_lag),
            # The last one that was measured says nothing while no pipeline measures it.
            "input_lag_ms": None if input_lag is None or progress is None else input_lag.ms,
            "paused": version.state == "building" and pace is not None and pace.is_paused,
            "progress": None if progress is None else asdict(progress),
            "pipeline": pipeline,
            "shared_jvm": jvm,
            "follower_pid": running.follower.pid,
            "follower_error": running.follower.error,
            "folder": str(running.folder),
            "error": version.error or pipeline["error"] or (jvm and jvm["error"]),
        }

    def _known(self, number: int) -> _Tended:
        """`number`: of a version of the view, because its entry stays until the version is freed."""
        return self._versions.setdefault(number, _Tended())

    def _all_running(self) -> list[RunningVersion]:
        return [known.running for known in list(self._versions.values()) if known.running is not None]

    def _keep(self) -> None:
        tends = (
            self._tend_versions,
            self._note_cuts,
            self._tend_readiness,
            self._tend_pace,
            self._tend_shift,
            self._free_retired,
            self._limit_logs,
        )
        while not self._stopping.is_set():
            # One by one: a version that cannot be freed must not prevent the rollback of another one.
            for tend in tends:
                try:
                    tend(self._journal.view(self.name))
                except TransientError as error:
                    logger.warning("view %s: %s", self.name, error)
                except Exception:
                    logger.exception("view %s", self.name)
                    self._stopping.wait(1.0)
                self.has_tried.set()  # the first one opens the versions
            self._wake.wait(TICK_S)
            self._wake.clear()

    def _tend_versions(self, view: View) -> None:
        for version in view.versions:
            running = self.running(version.number)
            if version.lives and running is None:
                self._begin(version)
            elif not version.lives and running is not None:
                self._known(version.number).running = None
                running.stop()

    def _note_cuts(self, view: View) -> None:
        serving = self.running(view.routing.serving or 0)
        if serving is not None and serving.cut is not None:
            self._known(serving.spec.version).seen_cuts.note(serving.cut, self._clock.monotonic_ms())

    def _free_retired(self, view: View) -> None:
        """Deletes the data of retired versions. Tries again after an error: brokers may be away, or refuse it."""
        for version in view.versions:
            number, now_ms = version.number, self._clock.monotonic_ms()
            if version.state != "retired" or version.freed:
                continue
            known = self._known(number)
            if known.running is not None or now_ms < known.again_ms:
                continue
            try:
                free(VersionSpec.from_json(version.spec), self._environment)
            except (SuiroError, OSError) as error:
                said = f"what the version had cannot be deleted: {error}"
                if known.error != said:
                    logger.error("version %d of view %s: %s", number, self.name, said)
                known.error, known.again_ms = said, now_ms + FREE_AGAIN_MS
                continue
            self._journal.change(self.name, partial(lifecycle.freed, number=number), who=WHO)
            self._versions.pop(number)

    def _limit_logs(self, view: View) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._limit_logs_ms:
            return
        self._limit_logs_ms = now_ms + LIMIT_LOGS_MS
        for one in self._all_running():
            one.limit_logs()

    def _begin(self, version: Version) -> None:
        known, now_ms = self._known(version.number), self._clock.monotonic_ms()
        if now_ms < known.again_ms:
            return
        try:
            spec = VersionSpec.from_json(version.spec)
            known.running = RunningVersion(
                spec,
                self._environment,
                self._journal.code(self.name, spec.code),
                gave_up=lambda error: self._gave_up(version.number, error),
                is_beside=lambda: self._is_beside(version.number),
            )
        except (SuiroError, OSError) as error:
            said = str(error)
            if isinstance(error, PermissionError):
                said = f"{said}; the host's user needs the right to read and write there"
            if known.error != said:
                logger.error("version %d of view %s cannot be opened: %s", version.number, self.name, said)
            known.error = said
            is_lasting = isinstance(error, LASTING)
            known.failures = known.failures + 1 if is_lasting else 0
            known.again_ms = now_ms + BEGIN_AGAIN_MS if is_lasting else 0
            if version.state == "building" and known.failures >= FAILURES:
                self._gave_up(version.number, said)
            return
        known.error, known.failures = None, 0

    def _gave_up(self, number: int, error: str) -> bool:
        """Called by the supervisor. A version that is being built has failed. Returns True for a ready one, which is
        started again and again."""
        try:
            view = self._journal.change(self.name, lambda now: lifecycle.fail(now, number, error), who=WHO)
        except SuiroError as failure:
            logger.error("version %d of view %s failed, which cannot be noted: %s", number, self.name, failure)
            self._known(number).failed = error
            return True
        self._wake.set()
        return view.version(number).state == "ready"

    def _is_beside(self, number: int) -> bool:
        view = self._journal.view(self.name)
        return view.version(number).state == "building" and view.routing.serving is not None

    def _tend_readiness(self, view: View) -> None:
        """Marks a version as ready when its pipeline is, and the store has the pipeline's cut. Marks it as failed if
        that could not be noted before."""
        for version in view.live:
            known = self._known(version.number)
            running, failed = known.running, known.failed
            if version.state != "building" or running is None:
                continue
            if failed is not None:
                known.failed = None
                self._gave_up(version.number, failed)
                continue
            status = running.pipeline_status
            if status is None or status.state != "ready":
                continue
            if status.cut is None or (running.cut is not None and running.cut.number >= status.cut):
                self._journal.change(self.name, partial(lifecycle.caught_up, number=version.number), who=WHO)

    def _tend_pace(self, view: View) -> None:
        """Pauses a version that is being built while the serving version falls behind."""
        now_ms = self._clock.monotonic_ms()
        for version in view.live:
            known = self._known(version.number)
            running = known.running
            if running is not None and version.state == "ready" and read_throttle(running.folder) is not None:
                ask_throttle(running.folder, None)  # a throttle is for building only
            status = None if running is None else running.pipeline_status
            if status is not None and status.progress is not None:
                known.input_lag = known.input_lag or InputLag()
                known.input_lag.note(now_ms, status.progress.done, status.progress.total)
        routing = view.routing
        if routing.serving is None or routing.candidate is None:
            return
        live, known = self._known(routing.serving).input_lag, self._known(routing.candidate)
        if known.running is None or view.version(routing.candidate).state != "building":
            return
        pace = known.pace = known.pace or Pace(known.running.folder)
        was_paused = pace.is_paused
        pace.tend(now_ms, 0 if live is None else live.ms)
        if pace.is_paused and not was_paused:
            logger.warning(
                "version %d of view %s waits: version %d, which serves, lacks records since %d ms",
                routing.candidate, self.name, routing.serving, 0 if live is None else live.ms,
            )  # fmt: skip

    def _tend_shift(self, view: View) -> None:
        """Evaluates the rollback conditions and takes the rollout plan's steps, while callers are on the candidate."""
        routing = view.routing
        candidate = None if routing.candidate is None else self.running(routing.candidate)
        serving = None if routing.serving is None else self.running(routing.serving)
        if candidate is None or routing.share == 0 or serving is None:
            self._hold(None)
            # Only if the serving version runs: otherwise nothing would answer the callers.
            if serving is not None and routing.candidate is not None and routing.share:
                error = self._known(routing.candidate).error
                if routing.guards != NO_CONDITIONS and error is not None:
                    self._fall_back(f"version {routing.candidate} cannot be opened: {error}")
            return
        held = self._held
        if held is None or held.revision != view.revision:
            begun = self._clock.monotonic_ms()
            first = (begun, candidate.served.metrics.snapshot())
            held = _CurrentShare(revision=view.revision, since_ms=begun, looks=deque([first]))
            self._hold(held)
        is_compared = routing.guards.difference is None or held.difference is not None
        if not is_compared and not held.is_comparing:
            held.is_comparing = True
            numbers = serving.spec.version, candidate.spec.version
            threading.Thread(target=self._compare_for, args=(held, *numbers), daemon=True).start()
        reason = self._broken(routing.guards, held, candidate)
        if reason is not None:
            self._fall_back(reason)
        elif (
            routing.guide is not None
            and is_compared
            and self._clock.monotonic_ms() - held.since_ms >= routing.guide.hold_ms
        ):
            self._take_step(view, candidate.spec.version)

    def _hold(self, share: _CurrentShare | None) -> None:
        """Replaces the share before, and ends its comparison."""
        if self._held is not None:
            self._held.over.set()
        self._held = share

    def _broken(self, guards: RollbackConditions, held: _CurrentShare, candidate: RunningVersion) -> str | None:
        """Returns which condition is broken, and notes the sample."""
        number = candidate.spec.version
        reads = candidate.served.metrics.snapshot()
        since = reads - held.window(self._clock.monotonic_ms(), reads)
        sample = held.sample = rollback_conditions.Sample(
            reads=since.reads,
            errors=since.errors,
            p99_ms=since.p99_ms,
            difference=held.difference,
            lag_ms=None,
        )
        reason = rollback_conditions.broken(replace(guards, lag_ms=None), sample, version=number)
        if reason is None and guards.lag_ms is not None:
            # Last, and only if a condition needs it: its database may not answer.
            sample = held.sample = replace(sample, lag_ms=self.lag_ms(number))
            reason = rollback_conditions.broken(guards, sample, version=number)
        return reason

    def _take_step(self, view: View, candidate: int) -> None:
        decide = partial(lifecycle.next_step, lag_ms=self.lag_ms(candidate))
        try:
            decide(view)  # what is refused does not take the journal over, five times a second
            self._journal.change(self.name, decide, who=WHO, expected_revision=view.revision)
        except RefusedChangeError:
            pass  # the candidate lags: the step is held until it has caught up, or a condition is broken

    def _fall_back(self, reason: str) -> None:
        logger.warning("view %s falls back: %s", self.name, reason)
        self._journal.change(self.name, lambda now: lifecycle.trip(now, reason), who=WHO)

    def _compare_for(self, held: _CurrentShare, serving: int, candidate: int) -> None:
        try:
            held.difference = self._compare(self.name, serving, candidate, held.over)
            held.error = None
        except Exception as error:  # noqa: BLE001 - the comparison is repeated
            if held.over.is_set():
                return
            logger.warning("view %s: the guard's comparison is tried again: %r", self.name, error)
            held.error = f"the rows cannot be compared, which is tried again: {error}"
            held.pauses.wait(held.over)
            held.is_comparing = False
