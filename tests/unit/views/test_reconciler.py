"""A view is kept as the journal says: versions run, catch up, fail, are freed; a guided shift goes on or falls back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import wait_until

from suiro.clock import SystemClock
from suiro.errors import FatalError, TransientError, UsageError
from suiro.views.control import host as host_module
from suiro.views.control import lifecycle
from suiro.views.control import reconciler as keeping
from suiro.views.control.host import Host
from suiro.views.control.reconciler import Reconciler, _CurrentShare
from suiro.views.control.running import HostEnvironment
from suiro.views.cuts import Cut
from suiro.views.definition import VersionSpec
from suiro.views.pipeline.pace import ask_throttle, read_throttle
from suiro.views.pipeline.progress import Progress
from suiro.views.serving.served import ReadMetrics
from suiro.views.state import (
    NO_CONDITIONS,
    Change,
    ConcurrentChangeError,
    NotServedError,
    RollbackConditions,
    RolloutPlan,
    View,
    position_of,
)
from suiro.views.store.rows import StoreBrokenError, StoreOfAnotherError, StoreUnavailableError


class Memory:
    """A journal without a log."""

    def __init__(self) -> None:
        self.now = View(name="delays")
        self.events: list[Any] = []
        self.asked = 0
        self._lock = threading.Lock()

    def views(self) -> dict[str, View]:
        return {"delays": self.now}

    def view(self, name: str) -> View:
        return self.now

    def code(self, view: str, sha256: str) -> bytes:
        return b"zip"

    def change(
        self, name: str, decide: Callable[[View], Change], *, who: str, expected_revision: int | None = None
    ) -> View:
        with self._lock:
            self.asked += 1
            if expected_revision not in (None, self.now.revision):
                raise ConcurrentChangeError("changed")
            change = decide(self.now)
            if change.event is not None:
                self.events.append(change.event)
                self.now = change.view
            return self.now

    def deploy(self) -> None:
        number = lifecycle.next_number(self.now)
        spec = VersionSpec(
            view="delays", version=number, key=("id",), serve="sqlite", search=(), history_ms=1, code="c",
            application_id=f"delays-v{number}", output_topic=f"delays.v{number}", cuts_topic=f"delays.v{number}.cuts",
            entry="app.py:delays", fingerprint="f", inputs=("in",),
        )  # fmt: skip
        self.change("delays", lambda now: lifecycle.deploy(now, key=("id",), spec=spec.to_json()), who="ada")

    def commands(self) -> list[str]:
        return [event.command for event in list(self.events)]


@dataclass
class Running:
    """Stands in for a version's processes."""

    spec: VersionSpec
    gave_up: Callable[[str], bool]
    cut: Cut | None = None
    pipeline_status: Any = None
    metrics: ReadMetrics = field(default_factory=ReadMetrics)
    stopped: bool = False
    pipeline: Any = None
    served: Any = None
    folder: Path = Path("views")
    jvm: Any = None

    def __post_init__(self) -> None:
        self.store = SimpleNamespace(newest_cuts=lambda: [] if self.cut is None else [self.cut])
        self.follower = SimpleNamespace(error=None, pid=1)
        self.pipeline = SimpleNamespace(status=lambda: {"state": "running", "error": None})
        self.served = SimpleNamespace(metrics=self.metrics)

    def is_at(self, offset: int, *, ready: bool = True) -> None:
        number = 1 if self.cut is None else self.cut.number + 1
        self.cut = Cut(number=number, inputs={("in", 0): offset}, outputs={0: 1}, time_ms=0)
        state = "ready" if ready else "running"
        self.pipeline_status = SimpleNamespace(state=state, cut=number, progress=None)

    def limit_logs(self) -> None:
        pass

    def stop(self) -> None:
        self.stopped = True


@dataclass
class Kept:
    journal: Memory
    reconciler: Reconciler
    made: dict[int, Running]
    freed: list[int]
    differences: list[Any]

    def version(self, number: int) -> Running:
        return wait_until(lambda: self.made.get(number), what=f"version {number}")

    def two(self) -> None:
        """Version 1 serves, version 2 is ready."""
        for number in (1, 2):
            self.journal.deploy()
            self.version(number).is_at(10)
            wait_until(lambda n=number: self.journal.now.version(n).state == "ready", what="it is ready")  # type: ignore[misc]

    def shift(self, *steps: int, hold_ms: int = 1, guards: RollbackConditions = NO_CONDITIONS) -> None:
        guide = RolloutPlan(steps=steps, hold_ms=hold_ms)
        self.journal.change(
            "delays",
            lambda now: lifecycle.shift(now, steps[0], lag_ms=0, guards=guards, guide=guide),
            who="ada",
        )

    def ends(self, *numbers: int) -> None:
        """Versions end by themselves, and must be opened again."""
        for number in numbers:
            known = self.reconciler._versions[number]
            running, known.running = known.running, None
            assert running is not None
            running.stop()

    def ends_in(self, position: str) -> None:
        wait_until(
            lambda: position_of(self.journal.now) == position and self.journal.now.routing.guide is None,
            what=position,
        )


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Kept]:
    made: dict[int, Running] = {}
    freed: list[int] = []
    differences: list[Any] = []

    def run(spec: VersionSpec, place: HostEnvironment, code: bytes, *, gave_up: Any, is_beside: Any) -> Running:
        made[spec.version] = Running(spec, gave_up, folder=tmp_path)
        return made[spec.version]

    def compare(view: str, old: int, new: int, over: threading.Event) -> float:
        found = differences.pop(0) if differences else 0.0
        if callable(found):
            found = found(over)
        if isinstance(found, Exception):
            raise found
        return float(found)

    monkeypatch.setattr(keeping, "RunningVersion", run)
    monkeypatch.setattr(keeping, "free", lambda spec, place: freed.append(spec.version))
    monkeypatch.setattr(keeping, "TICK_S", 0.005)
    monkeypatch.setattr(keeping, "BEGIN_AGAIN_MS", 5)
    journal = Memory()
    place = HostEnvironment(data=tmp_path, bootstrap_servers="none", client_settings={}, postgres=None)
    reconciler = Reconciler("delays", journal, place, clock=SystemClock(), compare=compare)  # type: ignore[arg-type]
    reconciler.start()
    yield Kept(journal, reconciler, made, freed, differences)
    reconciler.stop()
    assert all(running.stopped for running in made.values())


def test_a_version_is_ready_when_readers_see_as_much(kept: Kept) -> None:
    kept.journal.deploy()
    running = kept.version(1)
    running.is_at(10, ready=False)
    running.is_at(20)
    behind, running.cut = running.cut, None  # the pipeline is there, the store is not
    threading.Event().wait(0.05)
    assert kept.journal.now.version(1).state == "building"
    running.cut = behind
    kept.ends_in("alone")


def test_a_version_that_cannot_be_built(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.two()
    kept.journal.change("delays", lambda now: lifecycle.retire(now, 2), who="ada")
    kept.journal.deploy()
    assert kept.version(3).gave_up("KeyError: 'delay'") is False
    kept.ends_in("alone")
    assert kept.journal.now.version(3).error == "KeyError: 'delay'"
    wait_until(lambda: kept.version(3).stopped, what="it is stopped")
    assert not kept.version(1).stopped
    assert kept.version(1).gave_up("no memory") is True  # who serves is started again and again

    def refuse(spec: VersionSpec, place: HostEnvironment) -> None:
        raise UsageError("no permission")

    monkeypatch.setattr(keeping, "free", refuse)
    kept.journal.change("delays", lambda now: lifecycle.retire(now, 3), who="ada")
    said = "what the version had cannot be deleted: no permission"
    wait_until(lambda: kept.reconciler.status()["versions"][-1]["error"] == said, what="why it is still there")


def test_of_a_pipeline_that_is_down_no_input_lag_is_known(kept: Kept) -> None:
    """It was that of its last moment, so that a version which had ended hours ago looked current."""
    kept.journal.deploy()
    version = kept.version(1)
    version.is_at(10)
    version.pipeline_status.progress = Progress(done=10, total=10, rate=0.0, left_s=0.0)

    def input_lag_ms() -> Any:
        return kept.reconciler.status()["versions"][0].get("input_lag_ms")

    wait_until(lambda: input_lag_ms() == 0, what="its lag")
    version.pipeline_status = None
    assert input_lag_ms() is None


LASTING = [
    StoreOfAnotherError("the store in v1 has rows from another log"),
    StoreBrokenError("the store is damaged: remove it"),
    PermissionError(13, "Permission denied", "views/delays/v1"),
]


@pytest.mark.parametrize("error", LASTING, ids=lambda error: type(error).__name__)
def test_a_version_whose_place_it_cannot_have_has_failed(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """One in a folder that the host may not read, or with a damaged store, was being built for ever."""

    def refuse(*arguments: Any, **named: Any) -> Any:
        raise error

    monkeypatch.setattr(keeping, "RunningVersion", refuse)
    kept.journal.deploy()
    kept.ends_in("none")
    wait_until(lambda: kept.journal.commands() == ["deploy", "fail"], what="it has failed")
    assert str(kept.journal.now.version(1).error).startswith(str(error))


def test_errors_that_end_do_not_fail_a_version(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """It failed for good at the first time that it had no right to its folder."""
    run, errors = keeping.RunningVersion, [LASTING[2], LASTING[1], OSError(28, "No space"), LASTING[2], LASTING[1]]

    def refuse(*arguments: Any, **named: Any) -> Any:
        if errors:
            raise errors.pop()
        return run(*arguments, **named)

    monkeypatch.setattr(keeping, "RunningVersion", refuse)
    kept.journal.deploy()
    kept.version(1).is_at(10)
    wait_until(lambda: kept.journal.now.version(1).state == "ready", what="it is ready")
    assert kept.reconciler.error(1) is None


def test_a_version_that_serves_and_whose_place_is_anothers_costs_the_log_nothing(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot fail any more, and is tried again and again: each decision takes the journal over anew."""
    kept.journal.deploy()
    kept.version(1).is_at(10)
    wait_until(lambda: kept.journal.now.version(1).state == "ready", what="it is ready")
    refusals: list[int] = []
    decisions: list[str] = []

    def refuse(spec: VersionSpec, *arguments: Any, **named: Any) -> Any:
        refusals.append(spec.version)
        raise StoreOfAnotherError("the store in v1 has rows from another log")

    monkeypatch.setattr(keeping, "RunningVersion", refuse)
    change = kept.journal.change
    monkeypatch.setattr(
        kept.journal,
        "change",
        lambda name, *given, **more: (decisions.append(name), change(name, *given, **more))[1],
    )
    kept.ends(1)
    wait_until(lambda: len(refusals) > 3, what="several attempts")
    assert decisions == []
    assert "rows from another log" in kept.reconciler.status()["versions"][0]["error"]


def test_a_candidate_that_cannot_be_opened_takes_callers_back(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a host's restart: nobody is answered, so there is nothing that could be counted."""
    kept.two()
    kept.shift(100, 10_000, hold_ms=60_000, guards=RollbackConditions(errors=0.01))

    def broken(*arguments: Any, **named: Any) -> Any:
        raise FatalError("the store is damaged")

    monkeypatch.setattr(keeping, "RunningVersion", broken)
    kept.ends(2)
    kept.ends_in("rolled back")
    assert "version 2 cannot be opened: the store is damaged" in kept.journal.events[-1].detail["reason"]
    host: Any = object.__new__(Host)
    host._journal, host._reconcilers = kept.journal, {"delays": kept.reconciler}
    assert host.pipelines() == [("delays", 1, True), ("delays", 2, False)]


@pytest.mark.parametrize("broken", [{1}, {1, 2}])
def test_callers_are_not_taken_back_to_a_version_that_cannot_be_opened(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, broken: set[int]
) -> None:
    """Its database is away, say. It is unknown then how far the candidate is behind."""
    kept.two()
    kept.shift(100, 10_000, hold_ms=60_000, guards=RollbackConditions(errors=0.01, lag_ms=60_000))
    run, refusals = keeping.RunningVersion, []

    def refuse(spec: VersionSpec, *arguments: Any, **named: Any) -> Any:
        if spec.version not in broken:
            return run(spec, *arguments, **named)
        refusals.append(spec.version)
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(keeping, "RunningVersion", refuse)
    kept.ends(*broken)
    wait_until(lambda: len(refusals) > 6, what="several attempts")
    assert position_of(kept.journal.now) == "shifting"
    broken.clear()
    wait_until(lambda: kept.reconciler.status()["sample"], what="the conditions are looked at again")


def test_a_view_that_cannot_be_tended_at_the_start_is_tended_later(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept.journal.deploy()
    kept.version(1).is_at(10)
    failures = [TransientError("no broker")]
    tend = Reconciler._tend_versions

    def tend_later(self: Reconciler, view: View) -> None:
        if failures:
            raise failures.pop()
        tend(self, view)

    kept.reconciler.stop()
    kept.made.clear()
    monkeypatch.setattr(Reconciler, "_tend_versions", tend_later)
    place = HostEnvironment(data=tmp_path, bootstrap_servers="none", client_settings={}, postgres=None)
    again = Reconciler("delays", kept.journal, place, clock=SystemClock(), compare=lambda *all: 0.0)  # type: ignore[arg-type]
    again.start()
    kept.version(1)
    again.stop()


def test_a_database_that_does_not_answer_keeps_no_other_view_from_answering(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host answered nobody until the last of its views was open."""
    kept.journal.deploy()
    kept.version(1)
    kept.reconciler.stop()
    kept.made.clear()
    run, answers = keeping.RunningVersion, threading.Event()

    def waits(*arguments: Any, **named: Any) -> Any:
        assert answers.wait(60)
        return run(*arguments, **named)

    monkeypatch.setattr(keeping, "RunningVersion", waits)
    monkeypatch.setattr(host_module, "OPEN_MS", 10, raising=False)
    host: Any = object.__new__(Host)
    host._journal, host._environment, host._clock = kept.journal, kept.reconciler._environment, SystemClock()
    host._reconcilers, host._reconcilers_lock, host._stopping = {}, threading.Lock(), threading.Event()
    host.comparing = SimpleNamespace(difference=None)
    opening = threading.Thread(target=host._open_reconcilers)
    opening.start()
    try:
        opening.join(10)
        assert not opening.is_alive()
        with pytest.raises(NotServedError, match="version 1 of view delays is being opened"):
            host.version("delays", 1)
    finally:
        answers.set()
        opening.join()
        host._reconcilers["delays"].stop()
    assert set(kept.made) == {1}


def test_a_version_of_another_release_holds_up_nothing_else(kept: Kept, tmp_path: Path) -> None:
    """The release before recorded it otherwise, or the next one did and the host went back."""
    kept.two()
    kept.reconciler.stop()
    kept.made.clear()
    now = kept.journal.now
    first, second = now.versions
    kept.journal.now = replace(now, versions=(replace(first, spec={**first.spec, "v": 99}), second))
    place = HostEnvironment(data=tmp_path, bootstrap_servers="none", client_settings={}, postgres=None)
    again = Reconciler("delays", kept.journal, place, clock=SystemClock(), compare=lambda *all: 0.0)  # type: ignore[arg-type]
    again.start()
    kept.version(2)
    assert "recorded in format 99" in again.status()["versions"][0]["error"]
    again.stop()


def test_a_throttle_is_for_building(kept: Kept) -> None:
    kept.two()
    ask_throttle(kept.version(2).folder, 5)
    wait_until(lambda: read_throttle(kept.version(2).folder) is None, what="the end of the throttle")


def test_a_retired_version_is_freed_once(kept: Kept) -> None:
    kept.two()
    kept.journal.change("delays", lambda now: lifecycle.retire(now, 2), who="ada")
    wait_until(lambda: kept.journal.now.version(2).freed, what="freed")
    assert kept.freed == [2]
    assert kept.version(2).stopped
    assert kept.reconciler.running(2) is None


def test_a_version_that_cannot_be_freed_holds_up_nothing_else(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers do not let the host delete topics: other versions are built, and taken back, all the same."""
    refusals: list[int] = []

    def refuse(spec: VersionSpec, place: HostEnvironment) -> None:
        refusals.append(spec.version)
        if len(refusals) < 3:
            raise UsageError("delete topic delays.v1: no permission for the topic")

    monkeypatch.setattr(keeping, "free", refuse)
    monkeypatch.setattr(keeping, "FREE_AGAIN_MS", 60_000)
    kept.two()
    kept.journal.change("delays", lambda now: lifecycle.shift(now, 10_000, lag_ms=0), who="ada")
    kept.journal.change("delays", lambda now: lifecycle.retire(now, 1), who="ada")
    wait_until(lambda: refusals, what="an attempt to free version 1")
    kept.journal.deploy()
    kept.version(3).is_at(10)
    wait_until(lambda: kept.journal.now.version(3).state == "ready", what="version 3 is ready")
    kept.shift(100, 10_000, hold_ms=60_000, guards=RollbackConditions(errors=0.01))
    wait_until(lambda: kept.reconciler.status()["sample"], what="the step is held")
    for _ in range(30):
        kept.version(3).metrics.failed()
    kept.ends_in("rolled back")
    assert refusals == [1]  # it waits before it tries again
    (first,) = (one for one in kept.reconciler.status()["versions"] if one["version"] == 1)
    assert "no permission for the topic" in first["error"]
    monkeypatch.setattr(keeping, "FREE_AGAIN_MS", 0)
    kept.reconciler._versions[1].again_ms = 0
    wait_until(lambda: kept.journal.now.version(1).freed, what="freed in the end")
    assert refusals == [1, 1, 1]


def test_a_failure_that_cannot_be_noted_is_noted_later(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is away at the very moment: nobody gives the version up a second time."""
    kept.journal.deploy()
    version = kept.version(1)
    change, failures = kept.journal.change, [TransientError("no broker")]

    def away(*arguments: Any, **named: Any) -> View:
        if failures:
            raise failures.pop()
        return change(*arguments, **named)

    monkeypatch.setattr(kept.journal, "change", away)
    assert version.gave_up("KeyError: 'delay'") is True
    kept.ends_in("none")
    assert kept.journal.now.version(1).error == "KeyError: 'delay'"


def test_steps_one_after_another(kept: Kept) -> None:
    kept.two()
    kept.shift(100, 1_000, 10_000)
    kept.ends_in("shifted")
    shares = [event.detail["to"] for event in kept.journal.events if "to" in event.detail]
    assert shares == [100, 1_000, 10_000]


def test_errors_take_callers_back(kept: Kept) -> None:
    kept.two()
    for _ in range(100):
        kept.version(2).metrics.failed()  # before the step began: they do not count
    kept.shift(100, 10_000, hold_ms=60_000, guards=RollbackConditions(errors=0.01))
    wait_until(
        lambda: kept.reconciler.status()["routing"]["guide"].get("held_ms") is not None,
        what="the step is held",
    )
    measured = wait_until(lambda: kept.reconciler.status()["sample"], what="what the guards look at")
    assert (measured["reads"], measured["errors"], measured["difference"]) == (0, 0, None)
    for _ in range(30):
        kept.version(2).metrics.failed()
    kept.ends_in("rolled back")
    wait_until(lambda: kept.reconciler.status()["sample"] is None, what="nothing is measured any more")
    assert "30 of 30 reads from version 2 failed" in kept.journal.events[-1].detail["reason"]
    assert kept.journal.now.routing.share_before_rollback == 100


def test_a_difference_takes_callers_back(kept: Kept) -> None:
    kept.two()
    kept.differences += [TransientError("no common cut yet"), KeyError("minutes"), 0.3]
    kept.shift(100, 10_000, guards=RollbackConditions(difference=0.2))
    kept.ends_in("rolled back")
    assert "30.00% of the rows of version 2 differ" in kept.journal.events[-1].detail["reason"]


def test_a_difference_that_is_known_after_the_conditions_were_evaluated_takes_no_step(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step was taken: the difference was not in what was evaluated, and was there when the step asked for it."""
    kept.two()
    evaluate = keeping.rollback_conditions.broken

    def broken(guards: RollbackConditions, sample: Any, *, version: int) -> str | None:
        held = kept.reconciler._held
        assert held is not None
        held.difference = 0.3
        return evaluate(guards, sample, version=version)

    monkeypatch.setattr(keeping.rollback_conditions, "broken", broken)
    kept.differences.append(lambda over: over.wait(60))
    kept.shift(100, 10_000, hold_ms=0, guards=RollbackConditions(difference=0.2))
    kept.ends_in("rolled back")
    assert kept.journal.now.routing.share_before_rollback == 100


def test_a_difference_that_cannot_be_told_is_told(kept: Kept) -> None:
    """The step was held for ever, and only the log of the host said why."""
    kept.two()
    kept.differences += [UsageError("no topic in common"), 0.3]
    kept.shift(100, 10_000, guards=RollbackConditions(difference=0.2))
    error = wait_until(lambda: kept.reconciler.status()["guard_error"], what="the error")
    assert error == "the rows cannot be compared, which is tried again: no topic in common"
    kept.ends_in("rolled back")
    wait_until(lambda: kept.reconciler.status()["guard_error"] is None, what="no error")


def test_a_difference_that_cannot_be_told_for_days_is_compared_again(kept: Kept) -> None:
    """The pause after the 1,025th failure was no number any more, and the step was held for ever."""
    kept.two()
    pauses: list[float] = []
    held: Any = _CurrentShare(revision=1, since_ms=0, looks=deque(), is_comparing=True)
    held.over = SimpleNamespace(is_set=lambda: False, wait=pauses.append)
    for _ in range(1_100):
        kept.differences.append(UsageError("no topic in common"))
        kept.reconciler._compare_for(held, 1, 2)
    assert (pauses[:3], pauses[-1], len(pauses)) == ([1, 2, 4], 60, 1_100)
    assert not held.is_comparing


def test_each_step_is_compared(kept: Kept) -> None:
    kept.two()
    kept.differences += [0.1, 0.1, 0.1]
    kept.shift(100, 1_000, 10_000, guards=RollbackConditions(difference=0.2))
    kept.ends_in("shifted")
    assert kept.differences == []


def test_a_comparison_for_a_share_before_ends(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    """It took an hour, although nobody needed its result any more."""
    ended: list[bool] = []
    begun = threading.Event()

    def waits(over: threading.Event) -> float:
        begun.set()
        ended.append(over.wait(60))
        raise TransientError("the comparison was ended: its caller has gone")

    kept.two()
    kept.differences += [waits, 0.3]
    kept.shift(100, 10_000, guards=RollbackConditions(difference=0.2))
    assert begun.wait(30)
    kept.shift(200, 10_000, guards=RollbackConditions(difference=0.2))
    kept.ends_in("rolled back")
    wait_until(lambda: ended == [True], what="the end of the first comparison")
    assert kept.journal.now.routing.share_before_rollback == 200
    assert "its caller has gone" not in caplog.text


def test_a_step_waits_for_a_candidate_that_lags(kept: Kept) -> None:
    kept.two()
    kept.version(1).is_at(20)  # at time 0, so version 2 lacks it for years
    kept.shift(100, 10_000)
    asked = kept.journal.asked
    threading.Event().wait(0.05)
    assert kept.journal.now.routing.share == 100
    assert kept.journal.asked == asked  # each time takes the journal over, which the log notes
    kept.version(2).is_at(20)
    kept.ends_in("shifted")


def test_a_candidate_that_lags_takes_callers_back_if_asked(kept: Kept) -> None:
    kept.two()
    kept.shift(100, 10_000, hold_ms=60_000, guards=RollbackConditions(lag_ms=1_000))
    kept.version(1).is_at(20)
    kept.ends_in("rolled back")
    assert "version 2 lags by" in kept.journal.events[-1].detail["reason"]


def test_a_lag_that_a_database_does_not_tell_delays_no_decision(kept: Kept) -> None:
    """It was read under the lock of all decisions, for a condition that no guard names, and for the answer of a
    rollback."""
    kept.two()
    asked, tells = threading.Event(), threading.Event()

    def hangs() -> list[Cut]:
        asked.set()
        assert tells.wait(60)
        return []

    host: Any = object.__new__(Host)
    host._journal, host._reconcilers = kept.journal, {"delays": kept.reconciler}
    serving = kept.version(1)
    serving.pipeline.status = lambda: {"state": "failed", "error": None}
    assert host.pipelines() == [("delays", 1, False), ("delays", 2, True)]
    serving.is_at(20)
    serving.store.newest_cuts = hangs
    kept.shift(100, 10_000, hold_ms=60_000, guards=RollbackConditions(errors=0.01))
    shifting = threading.Thread(target=host.shift, args=("delays", [200]), kwargs={"who": "ada"})
    shifting.start()
    try:
        assert asked.wait(30)
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(host.rollback("delays", who="bob")))
        asking.start()
        asking.join(30)
        assert [answer["position"] for answer in answers] == ["rolled back"]
        kept.shift(100, 10_000, hold_ms=60_000, guards=RollbackConditions(errors=0.01))

        def is_held() -> bool:
            held = kept.reconciler._held
            return held is not None and held.revision == kept.journal.now.revision and held.sample is not None

        wait_until(is_held, what="the step is held")
        for _ in range(30):
            kept.version(2).metrics.failed()
        kept.ends_in("rolled back")
        assert not tells.is_set()
    finally:
        tells.set()
        shifting.join()


def test_a_lag_that_is_not_known_does_not_hide_errors(kept: Kept) -> None:
    """The database of the serving version is away, and no condition was evaluated if one of them was the lag."""
    kept.two()
    serving = kept.version(1)

    def away() -> list[Cut]:
        raise StoreUnavailableError("no Postgres")

    serving.store.newest_cuts = away
    kept.shift(100, 10_000, hold_ms=60_000, guards=RollbackConditions(errors=0.01, lag_ms=60_000))
    wait_until(lambda: kept.reconciler._held, what="the step is held")
    serving.is_at(20)
    for _ in range(30):
        kept.version(2).metrics.failed()
    kept.ends_in("rolled back")
    assert "30 of 30 reads from version 2 failed" in kept.journal.events[-1].detail["reason"]


def test_a_candidate_that_lags_is_noticed_while_the_clock_is_behind(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was set back by a day: no cut is old by it, until it is there again."""
    kept.two()
    kept.shift(100, 10_000, hold_ms=60_000, guards=RollbackConditions(lag_ms=50))
    now_ms = SystemClock().wall_ms()
    monkeypatch.setattr(SystemClock, "wall_ms", lambda self: now_ms - 86_400_000)
    serving = kept.version(1)
    assert serving.cut is not None
    serving.cut = Cut(number=serving.cut.number + 1, inputs={("in", 0): 20}, outputs={0: 1}, time_ms=now_ms)
    kept.ends_in("rolled back")


def test_status_says_it_all(kept: Kept) -> None:
    kept.two()
    status = kept.reconciler.status()
    assert [one["output_topic"] for one in status["versions"]] == ["delays.v1", "delays.v2"]
    assert (status["position"], status["routing"]["serving"], status["routing"]["candidate"]) == (
        "ready",
        1,
        2,
    )
    assert [version["state"] for version in status["versions"]] == ["ready", "ready"]
    assert [version["lag_ms"] for version in status["versions"]] == [0, 0]


def test_a_guard_looks_at_the_last_minute_of_a_long_share() -> None:
    """A day of good reads, then none succeeds: of all reads few failed, of the last minute's all."""
    metrics = ReadMetrics()
    held = _CurrentShare(revision=1, since_ms=0, looks=deque([(0, metrics.snapshot())]))
    for second in range(5, 86_400, 5):
        metrics.answered(1.0)
        held.window(float(second), metrics.snapshot())
    for second in range(86_400, 86_461, 5):
        metrics.failed()
        reads = metrics.snapshot()
        since = reads - held.window(second * 1000, reads)
    assert (since.errors, since.reads) == (12, 12)
    assert len(held.looks) <= 14
