"""Child processes: what they say is heard, and none is left behind."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.waiting import wait_until

from suiro.foundation import process

DEADLINE_S = 60

Start = Callable[..., process.Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[process.Process] = []

    def begin(code: str, given: object = None) -> process.Process:
        command = [sys.executable, "-S", "-c", code]
        started.append(process.start_command(command, log=tmp_path / "log", given=given, folder=tmp_path))
        return started[-1]

    yield begin
    for one in started:
        process.kill(one)


def test_a_line_is_read_from_any_descriptor(start: Start) -> None:
    """`select.select` takes none above 1,023, which a process with many open files reaches."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1_100:
        pytest.skip("this process may not have so many open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1_100), hard))
    try:
        child = start("print('ready', flush=True)")
        assert child.stdout is not None
        with child.stdout as low:
            child.stdout = os.fdopen(fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1_024), "rb")
        assert process.first_line(child, DEADLINE_S) == b"ready\n"
        process.kill(child)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_events_are_the_objects_on_stdout(start: Start, tmp_path: Path) -> None:
    child = start(
        "import sys; print('{\"a\": ', end=''); print(sys.stdin.readline().strip() + '}')\n"
        "print('no JSON'); print('[1]'); print('{}'); print('to the log', file=sys.stderr)",
        given={"b": 1},
    )
    assert list(process.events(child)) == [{"a": {"b": 1}}, {}]
    assert process.wait_or_kill(child, DEADLINE_S)
    assert (tmp_path / "log").read_text() == "to the log\n"


def test_the_first_line_is_waited_for(start: Start) -> None:
    child = start("import sys; sys.stdin.readline(); print('ready'); sys.stdin.readline()")
    with pytest.raises(TimeoutError):
        process.first_line(child, 0)
    process.send_line(child, "go on")
    assert process.first_line(child, DEADLINE_S) == b"ready\n"
    process.send_line(child, "end")
    assert process.first_line(child, DEADLINE_S) == b""
    process.wait_or_kill(child, DEADLINE_S)
    process.send_line(child, "nobody hears it")


def test_a_child_that_does_not_stop_is_killed(start: Start) -> None:
    child = start(
        "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(1, flush=True); sys.stdin.read()"
    )
    process.first_line(child, DEADLINE_S)
    assert process.stop(child, 0.01) == -signal.SIGKILL
    assert child.stdin is not None
    assert child.stdin.closed
    assert process.stop(child) == -signal.SIGKILL


def test_pauses_are_twice_as_long_until_it_got_somewhere() -> None:
    stopping = threading.Event()
    stopping.set()
    backoff = process.Backoff(1, 5)
    pauses = []
    for _ in range(4):
        pauses.append(backoff.pause_s)
        backoff.wait(stopping)
    backoff.reset()
    assert [*pauses, backoff.pause_s] == [1, 2, 4, 5, 1]


def test_a_session_has_those_who_started_in_it(start: Start) -> None:
    code = "import os, sys\nif child := os.fork():\n    print(child, flush=True)\nsys.stdin.read()"
    leader = start(code)
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    assert set(process.session_members(leader.pid)) == {leader.pid, child}
    process.kill_group(leader)
    wait_until(lambda: not process.session_members(leader.pid), DEADLINE_S, "the end of both")


def test_a_log_has_a_limit_also_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOG_LIMIT_BYTES", 100)
    log = tmp_path / "log"
    process.limit_log(log)
    with log.open("ab", buffering=0) as writing:  # as a child has it
        writing.write(b"a" * 100)
        process.limit_log(log)
        assert log.stat().st_size == 100
        writing.write(b"b")
        process.limit_log(log)
        writing.write(b"c")
    assert log.read_bytes() == b"c"
    assert (tmp_path / "log.old").read_bytes() == b"a" * 100 + b"b"
    log.write_bytes(b"d" * 101)
    child = process.start_command([sys.executable, "-c", "1 / 0"], log=log)
    child.wait(DEADLINE_S)
    process.close_pipes(child)
    assert b"ZeroDivisionError" in log.read_bytes()
    assert (tmp_path / "log.old").read_bytes() == b"d" * 101
