"""Who may call a server, and what a refusal costs and says."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from suiro.errors import ConfigError
from suiro.foundation.http.users import Users, hash_password


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def write(path: Path, text: str) -> Path:
    """All files have the same time, as those that an archive or `cp -p` restores."""
    beside = path.with_name("beside")
    beside.write_text(text)
    os.utime(beside, (1_700_000_000, 1_700_000_000))
    return beside.replace(path)


def test_plain_and_hashed_passwords(tmp_path: Path) -> None:
    users = Users(write(tmp_path / "users", f"# comment\n\na:one\nb:{hash_password('t:w o')}\n"))
    for _ in range(2):  # the second time from memory
        assert users.verify(basic("a", "one")).name
        assert users.verify(basic("b", "t:w o")).name
        assert not users.verify(basic("a", "t:w o")).name
        assert not users.verify(basic("b", "one")).name
        assert not users.verify(basic("c", "one")).name


@pytest.mark.parametrize("header", ["", "Basic", "Basic ?", "Basic YQ==", "Bearer YTpvbmU=", "Basic /w==", "x y"])
def test_what_is_no_password(tmp_path: Path, header: str) -> None:
    assert not Users(write(tmp_path / "users", "a:one")).verify(header).name


def test_a_changed_file_counts_at_once(tmp_path: Path) -> None:
    """A password that was withdrawn stayed valid, if the new file had the time and the size of the old one."""
    path = write(tmp_path / "users", "a:one")
    users = Users(path)
    assert users.verify(basic("a", "one")).name
    write(path, "a:two")
    assert not users.verify(basic("a", "one")).name
    assert users.verify(basic("a", "two")).name
    write(path, "")  # half written: the old users stay
    assert users.verify(basic("a", "two")).name


def test_hashes_are_salted() -> None:
    assert hash_password("x") != hash_password("x")


@pytest.mark.parametrize(("text", "message"), [("", "has no users"), ("a\n", "line 1"), ("a:one\nb:\n", "line 2")])
def test_a_file_that_says_nothing(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Users(write(tmp_path / "users", text))
    with pytest.raises(ConfigError, match="No such file"):
        Users(tmp_path / "nix")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_bytes(b"m\xfcller:one\n")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        Users(path)
    users = Users(write(path, "a:one"))
    path.write_bytes(b"a:one\nm\xc3")  # half written
    assert users.verify(basic("a", "one")).name


def test_the_file_is_utf_8_in_any_locale(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_bytes("ada:wärme\n".encode())
    script = (
        "import sys; from pathlib import Path; from suiro.foundation.http.users import Users\n"
        f"print(Users(Path(sys.argv[1])).verify({basic('ada', 'wärme')!r}).name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("ada\n", "")
