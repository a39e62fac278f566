"""Who is answered by which version, while that changes under a reader's hands."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import wait_until

from suiro.clock import SystemClock
from suiro.errors import DeadlineExceededError, SuiroError, UsageError
from suiro.testing import node
from suiro.views.control import host as host_module
from suiro.views.control import lifecycle
from suiro.views.control.host import Host, HostConfig
from suiro.views.pipeline.pace import read_throttle
from suiro.views.state import (
    ALL,
    ConcurrentChangeError,
    NotServedError,
    RefusedChangeError,
    UnknownViewError,
    View,
)


def shifted() -> View:
    view = View(name="delays")
    for number in (1, 2):
        view = lifecycle.deploy(view, key=("id",), spec={}).view
        view = lifecycle.caught_up(view, number).view
    return lifecycle.shift(view, ALL, lag_ms=0).view


class Log:
    """A journal whose view changes right after it was looked at."""

    def __init__(self, *states: View) -> None:
        self._states = list(states)

    def view(self, name: str) -> View:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]


def host_of(journal: Log, *running: int) -> Host:
    host: Any = object.__new__(Host)
    host._journal = journal
    versions = {number: SimpleNamespace(served=number) for number in running}
    errors = {1: "no Postgres"}
    host._reconcilers = {"delays": SimpleNamespace(running=versions.get, error=errors.get)}
    made: Host = host
    return made


def test_a_version_that_is_retired_between_routing_and_reading() -> None:
    """The reader gets the version that answers now, not that the other one has no rows any more."""
    before = lifecycle.rollback(shifted()).view  # version 1 answers
    after = lifecycle.retire(shifted(), 1).view  # version 2 does, and 1 is gone
    assert host_of(Log(before, after), 2).serving("delays", "ada") == 2
    with pytest.raises(UnknownViewError, match="version 1 of view delays is retired"):
        host_of(Log(after), 2).version("delays", 1)


def test_a_version_that_cannot_be_opened_is_not_said_to_be_being_opened() -> None:
    """Readers were told to try again in a moment, for ever."""
    with pytest.raises(NotServedError, match="version 1 of view delays cannot be opened: no Postgres"):
        host_of(Log(shifted())).version("delays", 1)
    with pytest.raises(NotServedError, match="version 2 of view delays is being opened; try again"):
        host_of(Log(shifted())).version("delays", 2)


def test_consumers_are_not_moved_to_what_is_being_built() -> None:
    alone = lifecycle.retire(shifted(), 1).view
    building = lifecycle.deploy(alone, key=("id",), spec={}).view
    with pytest.raises(UsageError, match=r"version 3 of view delays is still being built; group 'billing'"):
        host_of(Log(building), 2).move_consumers("delays", group="billing", version=3)


def test_each_step_of_a_plan_allows_the_lag_that_was_asked_for() -> None:
    """Only the first did, and a candidate with a lag of more than 10 s stayed there."""
    host: Any = object.__new__(Host)
    host._lag_of_candidate = lambda name: lambda now: 20_000
    host._changed = lambda view, decide, who: decide(lifecycle.rollback(shifted()).view)
    plan = {"who": "ada", "max_lag_ms": 60_000}
    begun = host.shift("delays", [100, ALL], **plan).view
    stored = View.from_json(json.loads(json.dumps(begun.to_json())))
    assert lifecycle.next_step(stored, lag_ms=20_000).view.routing.share == ALL
    with pytest.raises(RefusedChangeError, match=r"by 60\.0 s"):
        lifecycle.next_step(stored, lag_ms=60_001)


class Deploys:
    """A journal that asks for the decision several times, and may refuse it in the end, or fail behind it."""

    topic_id = host = None

    def __init__(self, failure: Exception | None, *, folder: Path) -> None:
        self.known: dict[str, View] = {}
        self.decided: list[list[Path]] = []
        self.opened: list[str] = []
        self.changed: Callable[[], None] = lambda: None
        self._failure = failure
        self._folder = folder

    def views(self) -> dict[str, View]:
        return self.known

    def change(self, name: str, decide: Any, **_: Any) -> View:
        for _ in range(3):
            view: View = decide(View(name=name)).view
            self.decided.append(list(self._folder.glob("throttle*")))
        if not isinstance(self._failure, ConcurrentChangeError):
            self.known = {name: view}
        if self._failure is not None:
            raise self._failure
        return view


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Deploys], list[str]]:
    """Deploys a view with a throttle; which views were opened then."""
    spec: Any = SimpleNamespace(
        view="delays", version=1, key=("id",), serve="sqlite", leader_cuts_topic=None, name="delays.v1"
    )
    monkeypatch.setattr(host_module, "run_isolated", lambda *_, **__: {})
    monkeypatch.setattr(host_module, "VersionSpec", SimpleNamespace(from_json=lambda _: spec))
    monkeypatch.setattr(host_module, "Client", lambda *_, **__: nullcontext())
    monkeypatch.setattr(host_module, "check_names", lambda *_: None)

    def deployed(journal: Deploys) -> list[str]:
        opened = journal.opened
        host: Any = object.__new__(Host)
        host.config = HostConfig(bootstrap_servers="127.0.0.1:1", data=tmp_path)
        host.ended, host._is_ours, host._opens_late = threading.Event(), True, False
        host._clock, host._stopping = SystemClock(), threading.Event()
        host._environment = SimpleNamespace(folder=lambda _: tmp_path / "delays" / "v1", require_own=lambda _: None)
        host._journal, host._reconcilers = journal, {}
        host._open_reconcilers = lambda: opened.extend(journal.known)
        journal.changed = host._on_change
        host.status = lambda _, *, reads_lag: {}  # the answer must not wait for a database
        try:
            host.deploy(b"code", "app:view", who="ada", throttle=7)
        except (SuiroError, OSError) as error:
            return [*opened, type(error).__name__]
        return opened

    return deployed


def test_the_throttle_of_a_refused_deploy_is_not_written(
    tmp_path: Path, deploy: Callable[[Deploys], list[str]]
) -> None:
    folder = tmp_path / "delays" / "v1"
    refused = Deploys(ConcurrentChangeError("somebody else changed it"), folder=folder)
    assert deploy(refused) == ["ConcurrentChangeError"]
    assert not folder.exists() or not list(folder.iterdir())
    taken = Deploys(None, folder=folder)
    assert deploy(taken) == ["delays"]
    assert refused.decided + taken.decided == [[]] * 6
    assert read_throttle(folder) == 7


def test_a_view_is_opened_though_its_deploy_failed_once_it_was_decided(
    tmp_path: Path, deploy: Callable[[Deploys], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would open it before the next start of the host."""
    folder = tmp_path / "delays" / "v1"
    assert deploy(Deploys(DeadlineExceededError("no answer"), folder=folder)) == [
        "delays", "DeadlineExceededError",
    ]  # fmt: skip

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(host_module, "ask_throttle", full)
    assert deploy(Deploys(None, folder=folder)) == ["delays", "OSError"]


def test_a_view_is_opened_though_its_deploy_is_read_after_it_failed(
    tmp_path: Path, deploy: Callable[[Deploys], list[str]]
) -> None:
    """The brokers took the decision and went away: it is read once they are there again."""
    journal = Deploys(ConcurrentChangeError("no answer"), folder=tmp_path)
    assert deploy(journal) == ["ConcurrentChangeError"]
    journal.known = {"delays": View(name="delays")}
    journal.changed()
    wait_until(lambda: journal.opened == ["delays"], what="the view")


def test_a_host_that_is_taken_over_while_it_starts_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was stopped for a while (SIGSTOP), say. Its pipelines and those of the other host fenced each other until the
    next decision."""
    key = tmp_path / "key"
    key.write_text("0123456789abcdef" * 4)
    key.chmod(0o600)
    opened: list[Host] = []
    monkeypatch.setattr(Host, "_open_reconcilers", lambda self: opened.append(self))
    with node() as log:
        first, second = (
            Host(
                HostConfig(bootstrap_servers=log.bootstrap_servers, data=tmp_path / name, journal_key=key),
                url=f"http://{name}",
            )
            for name in ("first", "second")
        )
        take_over = first._journal.take_over

        def overtaken(mine: Any) -> None:
            take_over(mine)
            second.start()
            # Once it has read of this event, it has heard of the host that was written before.
            second._journal.change("delays", lambda now: lifecycle.deploy(now, key=("id",), spec={}), who="ada")
            wait_until(lambda: first._journal.views(), what="the decisions of the other host")

        monkeypatch.setattr(first._journal, "take_over", overtaken)
        first.start()
        assert first.ended.is_set()
        assert "another host took these views over: http://second" in str(first.why_ended)
        assert opened == [second]
        assert not second.ended.is_set()
        first.stop()
        second.stop()


def test_a_throttle_that_is_none_is_refused_before_anything_is_done() -> None:
    host: Any = object.__new__(Host)
    with pytest.raises(UsageError, match="a throttle is records a second"):
        host.deploy(b"code", "app:view", who="ada", throttle=-1)
