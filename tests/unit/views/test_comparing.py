"""A comparison has a limit: it ends with what is missing, in its turn, and leaves no process."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.view_stores import Described, cut
from support.waiting import wait_until

from suiro.clock import ManualClock, SystemClock
from suiro.errors import TransientError, UsageError
from suiro.views.control import comparing, isolated
from suiro.views.control.comparing import Comparing
from suiro.views.control.isolated import Limit
from suiro.views.control.running import HostEnvironment
from suiro.views.definition import VersionSpec
from suiro.views.state import Routing, Version, View
from suiro.views.store import open_store
from suiro.views.store.tables import Store


def spec_of(number: int) -> VersionSpec:
    return VersionSpec(
        view="flights", version=number, key=("carrier", "day"), serve="sqlite", search=(), history_ms=1, code="c",
        application_id=f"flights-v{number}", output_topic=f"flights.v{number}", cuts_topic=f"flights.v{number}.cuts",
        entry="app.py:flights", fingerprint="f", inputs=("in",),
    )  # fmt: skip


class Kept:
    """A journal of one view with two versions."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def view(self, name: str) -> View:
        versions = [Version(number=n, state="ready", key=("carrier", "day"), spec=spec_of(n).to_json()) for n in (1, 2)]
        return View(name=name, versions=tuple(versions), routing=Routing(serving=1, candidate=2))

    def keep_comparison(self, view: str, comparison_id: str, result: Mapping[str, Any]) -> None:
        self.kept.append(result)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[dict[int, Store]]:
    made = {n: open_store(Described(version=n), tmp_path / "flights" / f"v{n}") for n in (1, 2)}
    yield made
    for store in made.values():
        store.close()


@pytest.fixture
def compared(tmp_path: Path, stores: dict[int, Store]) -> Comparing:
    def served(view: str, number: int) -> Any:
        store = stores[number]
        return SimpleNamespace(version=number, store=store, follower=SimpleNamespace(cut=store.cut))

    place = HostEnvironment(data=tmp_path, bootstrap_servers="none", client_settings={}, postgres=None)
    return Comparing(
        Kept(),  # type: ignore[arg-type]
        place,
        served=served,
        clock=SystemClock(),
        stopping=threading.Event(),
    )


def test_offsets_that_never_come_are_named(compared: Comparing, stores: dict[int, Store]) -> None:
    stores[1].apply(cut(0, inputs={("in", 0): 30}), [], [])
    stores[2].apply(cut(0, inputs={("in", 0): 20}), [], [])
    with pytest.raises(TransientError, match=r"version 2 lacks what version 1 has of in-0 from offset 20 to 30"):
        compared.compare("flights", who="ada", timeout_ms=400)


def test_versions_that_read_nothing_in_common_are_not_waited_for(compared: Comparing, stores: dict[int, Store]) -> None:
    stores[1].apply(cut(0, inputs={("in", 0): 30}), [], [])
    stores[2].apply(cut(0, inputs={("other", 0): 20}), [], [])
    with pytest.raises(UsageError, match="version 2 reads other"):
        compared.compare("flights", who="ada")


@pytest.fixture
def meeting(stores: dict[int, Store]) -> None:
    for store in stores.values():
        store.apply(cut(0), [], [])


def test_a_key_is_a_list_of_its_parts(compared: Comparing) -> None:
    with pytest.raises(UsageError, match="each a list of its parts"):
        compared.explain("flights", keys=["UA"])
    with pytest.raises(UsageError, match=r"\['UA', 1, 2\] has 3"):
        compared.explain("flights", keys=[["UA", 1, 2]])


@contextmanager
def _all_turns_taken(compared: Comparing, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """People compare; who else does it finds a share of 0.25 at once."""
    begun, go_on = threading.Semaphore(0), threading.Event()

    def run(task: str, given: Any, *, limit: Limit) -> Any:
        if threading.current_thread() in working:
            begun.release()
            go_on.wait(60)
        return {"share": 0.25}

    monkeypatch.setattr(comparing, "run_isolated", run)
    working = [
        threading.Thread(target=compared.compare, args=("flights",), kwargs={"who": "ada"})
        for _ in range(comparing.HEAVY_AT_ONCE)
    ]
    for thread in working:
        thread.start()
    for _ in working:
        assert begun.acquire(timeout=30)
    yield
    go_on.set()
    for thread in working:
        thread.join()


@pytest.mark.usefixtures("meeting")
def test_who_waits_for_a_turn_waits_within_the_limit(compared: Comparing, monkeypatch: pytest.MonkeyPatch) -> None:
    with _all_turns_taken(compared, monkeypatch):
        with pytest.raises(TransientError, match=r"may take 0\.3 s; --timeout gives it longer\. Another comparison"):
            compared.compare("flights", who="bob", timeout_ms=300)
        gone = threading.Event()
        gone.set()
        with pytest.raises(TransientError, match="its caller has gone"):
            compared.compare("flights", who="eve", gone=gone)
    assert compared.difference("flights", 1, 2, threading.Event()) == 0.25


@pytest.mark.usefixtures("meeting")
def test_comparisons_that_end_in_one_millisecond_are_both_kept(
    compared: Comparing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal takes a second one of the same id for the first, and the host said that it had kept it."""
    monkeypatch.setattr(comparing, "run_isolated", lambda *_, **__: {"share": 0.0})
    monkeypatch.setattr(compared, "_clock", ManualClock())
    assert len({compared.compare("flights", who="ada")["id"] for _ in range(2)}) == 2


@pytest.mark.usefixtures("meeting")
def test_the_comparison_of_a_guard_does_not_wait_for_those_of_people(
    compared: Comparing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Theirs may take an hour each, and callers are on the candidate meanwhile."""
    with _all_turns_taken(compared, monkeypatch):
        assert compared.difference("flights", 1, 2, threading.Event()) == 0.25


@pytest.mark.usefixtures("meeting")
def test_the_comparison_of_a_guard_does_not_wait_for_that_of_another_view(
    compared: Comparing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it ended, callers of this view stayed on a wrong candidate."""
    begun, over = threading.Event(), threading.Event()

    def run(task: str, given: Any, *, limit: Limit) -> Any:
        if threading.current_thread() is slow:
            begun.set()
            while not limit.is_over:
                over.wait(0.01)
            limit.check()
        return {"share": 0.25}

    def compare() -> None:
        with pytest.raises(TransientError, match="its caller has gone"):
            compared.difference("slow", 1, 2, over)
        ended.set()

    monkeypatch.setattr(comparing, "run_isolated", run)
    ended = threading.Event()
    slow = threading.Thread(target=compare)
    slow.start()
    assert begun.wait(30)
    assert compared.difference("flights", 1, 2, threading.Event()) == 0.25
    over.set()
    slow.join()
    assert ended.is_set()


@pytest.mark.usefixtures("meeting")
def test_guards_of_many_views_take_turns(compared: Comparing, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shift of all views of a host started one process for each of them at the same moment."""
    begun, go_on = threading.Semaphore(0), threading.Event()

    def run(task: str, given: Any, *, limit: Limit) -> Any:
        begun.release()
        go_on.wait(60)
        return {"share": 0.0}

    monkeypatch.setattr(comparing, "run_isolated", run)
    working = [
        threading.Thread(target=compared.difference, args=(f"view{n}", 1, 2, threading.Event()))
        for n in range(comparing.GUARDS_AT_ONCE)
    ]
    for thread in working:
        thread.start()
    for _ in working:
        assert begun.acquire(timeout=30)
    over = threading.Event()
    over.set()
    with pytest.raises(TransientError, match="Another comparison or explanation had not ended"):
        compared.difference("one_more", 1, 2, over)
    go_on.set()
    for thread in working:
        thread.join()
    assert compared.difference("one_more", 1, 2, threading.Event()) == 0.0


@pytest.mark.usefixtures("meeting")
def test_who_has_waited_longest_for_a_turn_is_next(compared: Comparing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any of those that waited was, so the callers of one view could stay on a wrong candidate for hours."""
    begun: list[str] = []
    waiting: set[str] = set()
    go_on = threading.Semaphore(0)

    def run(task: str, given: Any, *, limit: Limit) -> Any:
        begun.append(threading.current_thread().name)
        assert go_on.acquire(timeout=60)
        return {"share": 0.0}

    def check(self: Limit, detail: str = "") -> None:
        waiting.add(threading.current_thread().name)

    monkeypatch.setattr(comparing, "run_isolated", run)
    monkeypatch.setattr(comparing, "POLL_S", 0.01)
    monkeypatch.setattr(Limit, "check", check)
    names = [f"view{n}" for n in range(comparing.HEAVY_AT_ONCE + 6)]
    threads = [
        threading.Thread(target=compared.compare, args=(name,), kwargs={"who": "ada"}, name=name) for name in names
    ]
    for name, thread in zip(names, threads, strict=True):
        thread.start()
        wait_until(lambda n=name: n in begun or n in waiting, what="its turn, or a wait for one")  # type: ignore[misc]
    for number in range(comparing.HEAVY_AT_ONCE + 1, len(names) + 1):
        go_on.release()
        wait_until(lambda n=number: len(begun) == n, what="the next turn")  # type: ignore[misc]
    go_on.release(len(names))
    for thread in threads:
        thread.join()
    assert begun == names


@pytest.mark.parametrize("end", ["time", "caller"])
def test_an_ended_task_leaves_no_process(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Its process waits for an input that never ends, as one that compares for an hour would."""
    started: list[subprocess.Popen[bytes]] = []

    def start(command: Any, **options: Any) -> subprocess.Popen[bytes]:
        # A process of the user's code may have its standard output, too.
        process = popen(["sh", "-c", "sleep 600 & wait"], **options)
        started.append(process)
        return process

    popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    monkeypatch.setattr(isolated.subprocess, "Popen", start)
    gone = threading.Event()
    limit = Limit("it", stopping=threading.Event(), seconds=0.2 if end == "time" else 600, gone=gone)
    if end == "caller":
        threading.Timer(0.2, gone.set).start()
    with pytest.raises(TransientError, match="it was ended after"):
        isolated.run_isolated("compare", {}, limit=limit)
    assert started[0].returncode is not None


def of_a_shell(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    monkeypatch.setattr(isolated.subprocess, "Popen", lambda command, **options: popen(["sh", "-c", script], **options))


def test_a_task_is_answered_although_its_code_has_started_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the pipe of the answer, and the host waited for its end until the limit."""
    of_a_shell(monkeypatch, """sleep 600 & echo '{"ok": 1}'""")
    limit = Limit("it", stopping=threading.Event(), seconds=20)
    assert isolated.run_isolated("check", {}, limit=limit) == 1


def test_an_ended_task_is_not_waited_for_if_its_code_has_left_its_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No signal reaches that process, and it has the pipe. The host could not even be stopped."""
    told, gone = tmp_path / "pid", threading.Event()
    of_a_shell(monkeypatch, f"setsid sh -c 'echo $$ > {told}.new; mv {told}.new {told}; exec sleep 600' & wait")
    monkeypatch.setattr(isolated, "END_S", 0.1, raising=False)
    limit = Limit("it", stopping=threading.Event(), seconds=60, gone=gone)

    def leave() -> None:
        wait_until(told.exists, what="its process")
        gone.set()

    leaving = threading.Thread(target=leave)
    leaving.start()
    with pytest.raises(TransientError, match="its caller has gone"):
        isolated.run_isolated("compare", {}, limit=limit)
    leaving.join()
    os.kill(int(told.read_text()), signal.SIGKILL)
