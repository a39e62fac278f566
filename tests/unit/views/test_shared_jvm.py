"""What a host does with the JVM of its versions. A process that speaks as `suiro.spark.shared_jvm` stands in for it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from suiro.errors import FatalError
from suiro.foundation import process
from suiro.views.pipeline import shared_jvm, supervision
from suiro.views.pipeline.shared_jvm import JvmProcess, SharedJvm

PROGRAM = """
import json, os, sys

def say(event, **values):
    print(json.dumps({"event": event, **values}), flush=True)

behaviour = sys.argv[1]
if behaviour == "cannot start":
    say("failed", error="there is no Java", is_transient=False)
    sys.exit(1)
if behaviour in ("fails and stays", "fails when asked and stays"):
    if behaviour == "fails when asked and stays":
        sys.stdin.readline()
    say("failed", error="there is no Java", is_transient=False)
    sys.stdin.read()
    sys.exit(1)
say("running")
for line in sys.stdin:
    said = json.loads(line)
    if said["ask"] == "join":
        if behaviour == "cannot join":
            say("failed", error="out of memory", is_transient=False)
            sys.exit(3)
        say("joined", program=said["program"], port=os.getpid(), secret="s")
    elif said["ask"] == "leave":
        if behaviour == "dies":
            say("failed", error="ended with code 3", is_transient=False)
            sys.exit(1)
        say("left", program=said["program"])
"""


class Jvms:
    """The one of a host; each start behaves as the next of `behaviours` says, and the last one again and again."""

    def __init__(self, folder: Path) -> None:
        self.behaviours = ["works"]
        self.started: list[JvmProcess] = []
        self.folder = folder
        self.shared = SharedJvm(folder, settings={})

    def start(self, folder: Path, **_: Any) -> JvmProcess:
        behaviour = self.behaviours[min(len(self.started), len(self.behaviours) - 1)]
        command = [sys.executable, "-c", PROGRAM, behaviour]
        self.started.append(JvmProcess(process.start_command(command, log=self.folder / "log")))
        return self.started[-1]

    def join(self, program: str = "one") -> int:
        found = self.shared.join(program, folder=self.folder, niceness=0, is_over=lambda: False)
        assert found is not None
        return int(found["port"])


@pytest.fixture
def jvms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Jvms]:
    made = Jvms(tmp_path)
    monkeypatch.setattr(shared_jvm.JvmProcess, "start", made.start)
    yield made
    if made.shared.status() is not None:
        made.shared.exit("one", tmp_path)


def test_it_runs_for_the_first_and_ends_with_the_last(jvms: Jvms) -> None:
    assert jvms.shared.status() is None
    jvms.shared.enter()
    jvms.shared.enter()
    assert jvms.join("one") == jvms.join("two") == jvms.started[0].pid
    assert jvms.shared.leave("one") is False
    jvms.shared.exit("one", jvms.folder)
    assert jvms.started[0].is_alive
    jvms.shared.exit("two", jvms.folder)
    assert not jvms.started[0].is_alive
    assert jvms.shared.status() is None
    jvms.shared.enter()
    assert jvms.join() == jvms.started[1].pid


def test_one_that_cannot_be_started_says_why(jvms: Jvms) -> None:
    jvms.behaviours = ["cannot start"]
    jvms.shared.enter()
    with pytest.raises(FatalError, match=r"there is no Java; .*spark\.log says more"):
        jvms.join()
    jvms.behaviours = ["works"]
    assert jvms.join() == jvms.started[-1].pid  # the next attempt does not fail for the last one's reason


def test_one_that_has_failed_and_did_not_end_yet_is_not_joined_again(jvms: Jvms) -> None:
    jvms.behaviours = ["fails and stays", "works"]
    jvms.shared.enter()
    wait_until(lambda: jvms.started and jvms.started[0].status.state == "failed", what="the failure")
    with ThreadPoolExecutor(1) as threads:
        joining = threads.submit(jvms.join)
        wait_until(joining.running, what="the second attempt")
        os.kill(jvms.started[0].pid, signal.SIGKILL)
        assert joining.result(60) == jvms.started[-1].pid


def test_one_that_has_failed_and_never_ends_is_killed(jvms: Jvms, monkeypatch: pytest.MonkeyPatch) -> None:
    """No version could run any more until the host was started again."""
    monkeypatch.setattr(supervision, "END_S", 0.05)
    jvms.behaviours = ["fails and stays", "works"]
    jvms.shared.enter()
    wait_until(lambda: jvms.started and jvms.started[0].status.state == "failed", what="the failure")
    assert jvms.join() == jvms.started[1].pid
    assert not jvms.started[0].is_alive


def test_one_that_fails_while_it_is_waited_for_says_why_although_it_stays(jvms: Jvms) -> None:
    jvms.behaviours = ["fails when asked and stays"]
    jvms.shared.enter()
    wait_until(lambda: (jvms.shared.status() or {})["pid"], what="its start")
    begun, over = threading.Event(), threading.Event()

    def is_over() -> bool:
        begun.set()
        return over.is_set()

    with ThreadPoolExecutor(1) as threads:
        joining = threads.submit(jvms.shared.join, "one", folder=jvms.folder, niceness=0, is_over=is_over)
        try:
            assert begun.wait(60)
            jvms.started[0].ask("fail", "one")
            with pytest.raises(FatalError, match="there is no Java"):
                joining.result(60)
        finally:
            over.set()


def test_nobody_waits_for_ever_for_one_that_dies_again_and_again(jvms: Jvms) -> None:
    jvms.behaviours = ["cannot join"]
    jvms.shared.enter()
    with pytest.raises(FatalError, match="out of memory"):
        jvms.join()
    assert len(jvms.started) >= 3


def test_who_waits_for_one_that_is_killed_gets_the_next(jvms: Jvms) -> None:
    jvms.shared.enter()
    first = jvms.join()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not jvms.started[0].is_alive, what="its end")
    assert jvms.join("two") == jvms.started[1].pid
    assert jvms.shared.leave("one") is False  # a kill says nothing about the version
    assert jvms.shared.leave("two") is False


def test_one_that_dies_by_itself_counts_against_its_versions(jvms: Jvms) -> None:
    jvms.behaviours = ["dies", "works"]
    jvms.shared.enter()
    jvms.join()
    assert jvms.shared.leave("one") is True
    assert jvms.shared.leave("one") is False  # it has left


def test_who_ends_meanwhile_waits_no_longer(jvms: Jvms) -> None:
    found = jvms.shared.join("one", folder=jvms.folder, niceness=0, is_over=lambda: True)
    assert found is None
