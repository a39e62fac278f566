"""Streams of a command that are closed or full, and a locale that has less than Unicode."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import suiro

from suiro.cli.everyday import log_to_stderr

TIMEOUT_S = 60


def _shell(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", script.replace("suiro ", f"{sys.executable} -m suiro ", 1)],
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_may_be_closed(closed: str) -> None:
    done = _shell(f"suiro schema list --registry mock://of-a-test {closed}")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_does_not_go_to_the_output_where_its_stream_is_closed() -> None:
    done = _shell("suiro schema get nothing --registry mock://of-a-test 2>&-")
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("words", ["--version", "schema list --registry mock://of-a-test", "node --help"])
def test_an_output_that_takes_nothing_is_told_once(words: str) -> None:
    done = _shell(f"suiro {words} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "suiro: [Errno 28] No space left on device\n"


def test_what_the_locale_cannot_write_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[source."wärme"]\nkind = "files"\nfolder = "."\ntopic = "t"\n', encoding="utf-8")
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = _shell(f"suiro connect check {tmp_path / 'c.toml'}", **locale)
    assert (done.stdout, done.stderr) == ("source.w\\xe4rme: files\n", "")


@pytest.mark.parametrize(("given", "said"), [(r"\377", "suiro: - is not UTF-8: "), (r"\303\244", "")])
def test_a_schema_is_utf_8_whatever_the_locale_is(given: str, said: str) -> None:
    schema = f"""printf '{{"type": "string", "doc": "{given}"}}'"""
    done = _shell(f"{schema} | suiro schema register s - --registry mock://of-a-test", LC_ALL="C")
    assert (done.returncode, done.stderr[: len(said)], done.stderr.count("\n")) == (bool(said), said, bool(said))


def test_a_message_of_a_log_is_no_other_line_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services write what a record has, or another server says, to a terminal."""
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    log_to_stderr()
    logging.getLogger("suiro.test").warning("refused: %s", "\x1b]0;owned\x07\n2026-11-27 INFO all is well")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(r"WARNING suiro.test: refused: \x1b]0;owned\x07")
    assert second == "    2026-11-27 INFO all is well"


def test_why_a_service_does_not_start_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = suiro("node", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "file" / "\x1b[2J"))
    assert (done.code, r"\x1b[2J" in done.err, "\x1b" in done.err) == (1, True, False)
