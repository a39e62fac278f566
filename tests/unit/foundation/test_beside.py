"""A service beside another: started again whatever happens to it."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from suiro.foundation import beside
from suiro.foundation.beside import Beside
from suiro.foundation.http import listen_on


def test_a_service_is_started_once_there_is_memory_again(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def start(arguments: Any, **more: Any) -> subprocess.Popen[bytes]:
        started.append(arguments)
        if len(started) < 3:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        command = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
        return subprocess.Popen(command, stdin=subprocess.PIPE)

    monkeypatch.setattr(beside, "start_service", start)
    monkeypatch.setattr(beside, "FIRST_PAUSE_S", 0.01)
    failed: list[Any] = []
    service = Beside("console", listen_on("127.0.0.1", 0, name="test"), ["console"], failed=failed.append)
    try:
        wait_until(lambda: service.pid is not None, what="the service")
        assert Path(f"/proc/{service.pid}").exists()
        assert failed == []
    finally:
        service.stop()


def test_a_service_that_has_run_does_not_end_the_process_when_its_files_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file of users with a mistake, which the running console ignores, stopped the node once the console was
    killed and started again."""
    alive, wrong = "import sys; sys.stdin.read()", "raise SystemExit(1)"
    scripts = [alive, wrong, wrong, alive]
    started: list[subprocess.Popen[bytes]] = []

    def start(arguments: Any, **more: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-S", "-c", scripts[len(started)]]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE))
        return started[-1]

    monkeypatch.setattr(beside, "start_service", start)
    monkeypatch.setattr(beside, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(beside, "STARTED_S", 0.0)
    failed: list[Any] = []
    service = Beside("console", listen_on("127.0.0.1", 0, name="test"), ["console"], failed=failed.append)
    try:
        wait_until(lambda: len(started) == 1, what="the first start")
        started[0].kill()
        wait_until(lambda: len(started) == 4 or failed, what="the fourth start")
        assert failed == []
    finally:
        service.stop()


def test_a_service_that_cannot_run_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-S", "-c", "raise SystemExit(1)"]
    monkeypatch.setattr(beside, "start_service", lambda *_, **more: subprocess.Popen(command, stdin=subprocess.PIPE))
    failed: list[Any] = []
    service = Beside("console", listen_on("127.0.0.1", 0, name="test"), ["console"], failed=failed.append)
    try:
        wait_until(lambda: failed, what="the failure")
        assert "ended with code 1" in str(failed[0])
    finally:
        service.stop()
