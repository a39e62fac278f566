"""A child that ends is started again; one that gets nowhere is given up."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass, field

import pytest
from support.waiting import wait_until

from suiro.errors import ConfigError
from suiro.views.pipeline import supervision
from suiro.views.pipeline.supervision import FAILURES, ChildStatus, Supervisor


@dataclass
class Child:
    """Ends when the test says so."""

    pid: int
    status: ChildStatus = field(default_factory=lambda: ChildStatus(state="running"))
    ended: threading.Event = field(default_factory=threading.Event)
    stopped: bool = False

    @property
    def is_alive(self) -> bool:
        return not self.ended.is_set()

    def end(self, error: str | None = None, *, is_transient: bool = False, is_of_record: bool = False) -> None:
        self.status = ChildStatus(
            state="failed" if error else "ended",
            error=error,
            is_transient=is_transient,
            is_of_record=is_of_record,
        )
        self.ended.set()

    def stop(self) -> None:
        self.stopped = True
        self.ended.set()


class Runs:
    """Children that were started, one after another."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.progress = 0
        self.gave_up: list[str] = []
        self.goes_on = False

    def start(self) -> Child:
        self.children.append(Child(pid=len(self.children) + 1))
        return self.children[-1]

    def supervisor(self) -> Supervisor:
        return Supervisor("v1", self.start, progress=lambda: self.progress, gave_up=self._give_up)

    def _give_up(self, error: str) -> bool:
        self.gave_up.append(error)
        return self.goes_on

    def number(self, count: int) -> Child:
        wait_until(lambda: len(self.children) >= count, what=f"child {count}")
        return self.children[count - 1]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setattr(supervision, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(supervision, "POLL_S", 0.001)
    return Runs()


def test_a_child_that_was_killed_is_started_again(runs: Runs) -> None:
    supervisor = runs.supervisor()
    for number in range(1, 8):
        child = runs.number(number)
        runs.progress += 1
        child.end("killed by signal 9")
    assert runs.number(8).is_alive
    assert runs.gave_up == []
    wait_until(lambda: supervisor.status()["pid"] == 8, what="the eighth")
    assert supervisor.status()["restarts"] == 7
    supervisor.stop()
    assert runs.children[-1].stopped
    assert len(runs.children) == 8


def test_a_child_that_has_failed_and_does_not_end_is_stopped(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "END_S", 0.001)
    supervisor = runs.supervisor()
    runs.number(1).status = ChildStatus(state="failed", error="no memory")
    assert runs.number(2).is_alive
    assert runs.children[0].stopped
    assert supervisor.status()["restarts"] == 1
    supervisor.stop()


def test_failures_without_progress(runs: Runs) -> None:
    supervisor = runs.supervisor()
    for number in range(1, FAILURES + 1):
        runs.number(number).end("KeyError: 'dep_delay'")
    wait_until(lambda: runs.gave_up, what="giving up")
    assert runs.gave_up == ["KeyError: 'dep_delay'"]
    supervisor.stop()
    assert len(runs.children) == FAILURES
    status = supervisor.status()
    assert (status["state"], status["error"]) == ("failed", "KeyError: 'dep_delay'")


def test_who_serves_is_started_again_and_again(runs: Runs) -> None:
    runs.goes_on = True
    supervisor = runs.supervisor()
    for number in range(1, FAILURES + 3):
        runs.number(number).end("broken")
    assert runs.number(FAILURES + 3).is_alive
    assert runs.gave_up == ["broken"]
    supervisor.stop()


def test_who_serves_stops_at_a_record_that_always_fails(
    runs: Runs, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.goes_on = True
    supervisor = runs.supervisor()
    said = "in: topic t, partition 0, offset 7: ValueError"
    states = []
    monkeypatch.setattr(
        supervision.process.Backoff, "wait", lambda self, stopping: states.append(supervisor.status()["state"])
    )
    runs.number(1).end(said, is_of_record=True)
    runs.number(2).end("no broker answers", is_transient=True)
    for number in range(3, 3 + FAILURES):
        runs.number(number).end(said, is_of_record=True)
    wait_until(lambda: "is not started again" in caplog.text, what="the end")
    assert caplog.text.count(f"not started again: {said}") == 1
    assert set(states) == {"restarting"}
    assert supervisor.status() == {
        "pid": None,
        "state": "failed",
        "restarts": 1 + FAILURES,
        "error": f"{said}; it failed 3 times, and is down until the host restarts",
    }
    supervisor.stop()
    assert len(runs.children) == 2 + FAILURES


def test_other_records_and_progress_begin_the_count_again(runs: Runs) -> None:
    runs.goes_on = True
    supervisor = runs.supervisor()
    for number in range(1, 2 * FAILURES + 1):
        runs.number(number).end(f"offset {number % 2}", is_of_record=True)
    for number in range(2 * FAILURES + 1, 4 * FAILURES + 1):
        runs.progress += 1
        runs.number(number).end("offset 7", is_of_record=True)
    assert runs.number(4 * FAILURES + 1).is_alive
    supervisor.stop()


def test_an_error_of_its_surroundings_does_not_count(runs: Runs) -> None:
    supervisor = runs.supervisor()
    for number in range(1, FAILURES + 3):
        runs.number(number).end("no broker answers", is_transient=True)
    assert runs.number(FAILURES + 3).is_alive
    assert runs.gave_up == []
    supervisor.stop()


@pytest.mark.parametrize(
    "refused", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), RuntimeError("can't start new thread")]
)
def test_a_start_for_which_there_is_no_room_is_repeated(runs: Runs, refused: Exception) -> None:
    """A version that was being built had failed for good."""
    starts = 0

    def start() -> Child:
        nonlocal starts
        starts += 1
        if starts < 3 * FAILURES:
            raise refused
        return runs.start()

    supervisor = Supervisor("v1", start, progress=lambda: None, gave_up=runs._give_up)
    assert runs.number(1).is_alive
    assert runs.gave_up == []
    supervisor.stop()


def test_a_start_that_is_refused(runs: Runs) -> None:
    def start() -> Child:
        raise ConfigError("no Java")

    supervisor = Supervisor("v1", start, progress=lambda: None, gave_up=runs._give_up)
    wait_until(lambda: runs.gave_up, what="giving up")
    assert runs.gave_up == ["no Java"]
    supervisor.stop()
