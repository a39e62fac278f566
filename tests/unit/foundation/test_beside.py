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
