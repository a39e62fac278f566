"""A version in the host: what cannot be opened leaves nothing running, and what a host keeps is in no view's way."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import is_running, wait_until

from suiro.errors import ConfigError, UsageError
from suiro.views import view
from suiro.views.control import running
from suiro.views.control.host import CHECKS, LOCK
from suiro.views.control.running import HostEnvironment, LocationTakenError, RunningVersion
from suiro.views.definition import VersionSpec
from suiro.views.pipeline import SPEC
from suiro.views.pipeline.shared_jvm import JVM_FOLDER
from suiro.views.store import FILE_NAME
from suiro.views.store.rows import StoreUnavailableError


def spec_of(serve: Any = "sqlite") -> VersionSpec:
    return VersionSpec(
        view="delays", version=1, key=("id",), serve=serve, search=(), history_ms=1, code="c",
        application_id="delays-v1", output_topic="delays.v1", cuts_topic="delays.v1.cuts", entry="app.py:delays",
        fingerprint="f", inputs=("in",),
    )  # fmt: skip


def place_of(data: Path) -> HostEnvironment:
    return HostEnvironment(data=data, bootstrap_servers="none", client_settings={}, postgres=None)


def test_a_store_that_cannot_be_opened_leaves_no_follower(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[str] = []

    def refuse(*arguments: Any) -> Any:
        raise ConfigError("no such place")

    monkeypatch.setattr(running, "open_store", refuse)
    monkeypatch.setattr(running.Follower, "start", lambda self: started.append("follower"))
    with pytest.raises(ConfigError, match="no such place"):
        RunningVersion(spec_of(), place_of(tmp_path), b"zip", gave_up=lambda error: False, is_beside=lambda: False)
    assert started == []


def test_settings_that_this_release_refuses_leave_no_follower(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another release has taken them. The host tries again and again, and each time one more process stayed."""
    started: list[str] = []
    monkeypatch.setattr(running.Follower, "start", lambda self: started.append("follower"))
    jvm: Any = SimpleNamespace()
    spec = dataclasses.replace(spec_of(), settings={"jvm": "elsewhere"})
    with pytest.raises(ConfigError, match="setting jvm is 'elsewhere'"):
        RunningVersion(
            spec,
            dataclasses.replace(place_of(tmp_path), jvm=jvm),
            b"zip",
            gave_up=lambda error: False,
            is_beside=lambda: False,
        )
    assert started == []


def test_without_room_for_a_thread_nothing_stays_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The host tries again and again, and each time a follower stayed."""
    done: list[str] = []

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(running.Follower, "start", lambda self: done.append("started"))
    monkeypatch.setattr(running.Follower, "stop", lambda self: done.append("stopped"))
    monkeypatch.setattr(running, "Supervisor", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        RunningVersion(spec_of(), place_of(tmp_path), b"zip", gave_up=lambda error: False, is_beside=lambda: False)
    assert done == ["started", "stopped"]


def test_a_version_whose_rows_cannot_be_served_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its pipeline is well and says ready; readers would never see it."""
    gave_up: list[str] = []

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError("no right to the follower's log")

    monkeypatch.setattr("suiro.views.pipeline.follower.process.start_command", refuse)
    monkeypatch.setattr(running, "Supervisor", lambda *_, **__: SimpleNamespace(stop=lambda: None))
    version = RunningVersion(
        spec_of(),
        place_of(tmp_path),
        b"zip",
        gave_up=lambda error: bool(gave_up.append(error)),
        is_beside=lambda: False,
    )
    try:
        wait_until(lambda: gave_up, what="giving up")
        assert gave_up == ["its rows cannot be served: no right to the follower's log"]
    finally:
        version.stop()


def test_postgres_without_an_address_is_not_just_any_postgres(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="started without --postgres"):
        place_of(tmp_path).location(spec_of("postgres"))
    assert place_of(tmp_path).location(spec_of()) == str(tmp_path / "delays" / "v1")


def test_a_folder_of_another_logs_version_is_refused_and_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = place_of(tmp_path)
    theirs = dataclasses.replace(spec_of(), journal_id="A")
    folder = place.folder(theirs)
    folder.mkdir(parents=True)
    (folder / SPEC).write_text(json.dumps(theirs.to_json()))
    place.require_own(theirs)
    ours = dataclasses.replace(theirs, journal_id="B")
    with pytest.raises(LocationTakenError, match="has the id A, here B"):
        RunningVersion(ours, place, b"zip", gave_up=lambda error: False, is_beside=lambda: False)
    monkeypatch.setattr(running, "Client", lambda *_, **__: nullcontext(Empty()))
    running.free(ours, place)
    assert (folder / SPEC).exists()
    running.free(theirs, place)
    assert not folder.exists()


@pytest.mark.parametrize("error", [None, StoreUnavailableError("disk I/O error")])
def test_a_version_whose_store_cannot_be_opened_is_freed(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The host tried it again and again. A damaged store, or a full disk, may be why the version was retired."""

    def no_room(*_: Any) -> None:
        assert error is not None
        raise error

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("no")

    if error is not None:
        monkeypatch.setattr(running, "open_store", no_room)
    place = place_of(tmp_path)
    folder = place.folder(spec_of())
    folder.mkdir(parents=True)
    (folder / FILE_NAME).write_bytes(b"no store" * 1_000)
    monkeypatch.setattr(running, "Client", lambda *_, **__: nullcontext(Empty()))
    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", refuse)
        with pytest.raises(PermissionError):
            running.free(spec_of(), place)
    running.free(spec_of(), place)
    assert not folder.exists()


class Empty:
    """A log without topics."""

    def metadata(self) -> dict[str, Any]:
        return {}

    def delete_topics(self, names: list[str], **_: Any) -> None:
        assert names == []


@pytest.mark.parametrize("name", [CHECKS, LOCK, JVM_FOLDER])
def test_no_view_has_the_name_of_what_is_the_hosts(name: str) -> None:
    with pytest.raises(UsageError, match="small letters"):
        view(name, key="id")


HOST = """
import sys, threading
from suiro.views.control.isolated import run_isolated
from suiro.views.control.isolated import Limit
given = {"code_file": sys.argv[1], "entry": "app.py:f"}
run_isolated("check", given, limit=Limit("it", stopping=threading.Event(), seconds=600))
"""


def test_code_that_never_ends_ends_with_a_host_that_is_killed(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        # A process that it forks has no thread that looks for the host.
        archive.writestr(
            "app.py",
            f"import os\nos.fork()\nopen({str(told)!r}, 'a').write(f'{{os.getpid()}} ')\nwhile 1: pass\n",
        )
    (tmp_path / "code.zip").write_bytes(code.getvalue())
    with subprocess.Popen([sys.executable, "-c", HOST, str(tmp_path / "code.zip")]) as host:
        wait_until(lambda: told.exists() and told.read_text().count(" ") == 2, 60)
        host.send_signal(signal.SIGKILL)
    pids = [int(pid) for pid in told.read_text().split()]
    wait_until(lambda: not any(map(is_running, pids)), 30, "the end of the code")
