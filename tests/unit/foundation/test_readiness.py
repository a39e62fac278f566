"""A service says that it answers: on stdout, and to systemd where that started it."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import sys
from pathlib import Path

import pytest

from suiro.foundation.readiness import NOTIFY_SOCKET, say_ready


def _listening(name: str) -> socket.socket:
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(name)
    told.settimeout(10)
    return told


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_hears_that_it_is_ready(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {"path": str(tmp_path / "notify"), "abstract": f"@suiro-test-{os.getpid()}"}[kind]
    monkeypatch.setenv(NOTIFY_SOCKET, named)
    with _listening(named.replace("@", "\0")) as told:
        say_ready({"url": "http://127.0.0.1:1", "pid": 2})
        assert told.recv(100) == b"READY=1"
    assert json.loads(capsys.readouterr().out) == {"event": "ready", "url": "http://127.0.0.1:1", "pid": 2}


def test_nobody_is_told_where_nobody_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(NOTIFY_SOCKET, raising=False)
    say_ready({})
    assert capsys.readouterr().out == '{"event": "ready"}\n'
    assert caplog.messages == []


def test_a_service_goes_on_when_systemd_is_not_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(NOTIFY_SOCKET, str(tmp_path / "nobody"))
    say_ready({})
    assert capsys.readouterr().out == '{"event": "ready"}\n'
    (message,) = caplog.messages
    assert "cannot be told" in message
    assert str(tmp_path / "nobody") in message


class _Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_systemd_hears_also_where_the_line_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(NOTIFY_SOCKET, str(tmp_path / "notify"))
    monkeypatch.setattr(sys, "stdout", _Full())
    with _listening(str(tmp_path / "notify")) as told:
        say_ready({})
        assert told.recv(100) == b"READY=1"
    assert "No space left on device" in caplog.text
