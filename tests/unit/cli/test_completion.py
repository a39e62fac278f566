"""What completion offers, in its own words and as shells ask for it; where its scripts are put."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import suiro

from suiro.cli import completion
from suiro.cli.commands import COMMANDS
from suiro.cli.completion import SCRIPTS, candidates


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ([], [*COMMANDS, "--help", "--install-completion", "--show-completion", "--version"]),
        (["to"], ["topic"]),
        (["topic", "des"], ["describe"]),
        (["view", "compare", "v", "--ig"], ["--ignore"]),
        (["capture", "post"], ["postgres"]),
        (["capture", "postgres", "--slot-"], []),
        (["run", "app.py", "--no-such"], []),
        (["run", "--state-dir", ""], []),  # a path: the shell completes it
        (["no-such-command", ""], []),
        (["topic", "no-such-command", "--"], []),
        (["node", "--listen", ""], []),
        (["node", "--lis"], ["--listen"]),
    ],
)
def test_candidates(words: list[str], offered: list[str]) -> None:
    assert candidates(words) == offered


def test_options_that_are_for_programs_are_not_offered() -> None:
    assert "--while-stdin-is-open" not in candidates(["view", "serve", "--"])
    assert {"--wait", "--no-wait"} <= set(candidates(["view", "deploy", "--"]))


def test_choices_are_offered_behind_their_option() -> None:
    assert candidates(["user", "add", "ada", "--mechanism", "SCRAM-SHA-2"]) == ["SCRAM-SHA-256"]


def test_a_shell_asks_by_a_variable() -> None:
    done = suiro("topic", "cre", env={"_SUIRO_COMPLETE": "1"})
    assert (done.code, done.out, done.err) == (0, "create\n", "")


@pytest.mark.parametrize(
    ("shell", "ask"),
    [
        ("bash", 'COMP_WORDS=(suiro topic cre); COMP_CWORD=2; _suiro; echo "${COMPREPLY[@]}"'),
        ("fish", "complete -C 'suiro topic cre'"),
    ],
)
def test_the_script_works_in_its_shell(shell: str, ask: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    command = tmp_path / "suiro"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m suiro "$@"\n')
    command.chmod(0o755)
    script = f"PATH={tmp_path}:$PATH\n{SCRIPTS[shell]}\n{ask}\n"
    done = subprocess.run([shell, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "create\n", done.stderr


@pytest.mark.parametrize(("shell", "profile"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", None)])
def test_a_script_is_installed_once(shell: str, profile: str | None, tmp_path: Path) -> None:
    if profile is not None:
        (tmp_path / profile).write_text("mine\n")
    for _ in range(2):
        path = completion._install(shell, tmp_path)
        assert path.read_text() == SCRIPTS[shell]
    if profile is not None:
        said = (tmp_path / profile).read_text()
        assert said.startswith("mine\n")
        assert said.count(str(path)) == 1


def test_a_shell_that_is_not_known() -> None:
    done = suiro("--show-completion", env={"SHELL": "/bin/tcsh"})
    assert done.code == 2
    assert "Give one of bash, zsh, fish" in done.err
    assert suiro("--show-completion", env={"SHELL": "/bin/bash"}).out == SCRIPTS["bash"]


def test_a_profile_keeps_its_bytes(tmp_path: Path) -> None:
    profile = tmp_path / ".bashrc"
    profile.write_bytes(b"# caf\xe9\nalias a=b")
    for _ in range(2):
        path = completion._install("bash", tmp_path)
    assert profile.read_bytes() == b"# caf\xe9\nalias a=b\nsource '" + str(path).encode() + b"'\n"


@pytest.mark.parametrize(("words", "variable"), [(["--help"], ""), (["to"], "1")])
def test_the_first_word_loads_no_declarations(words: list[str], variable: str) -> None:
    """A user waits for it at each press of the key."""
    code = (
        f"import atexit, os, sys; sys.argv = ['suiro', *{words}]; os.environ['_SUIRO_COMPLETE'] = '{variable}'\n"
        "atexit.register(lambda: print('inspect' in sys.modules))\nfrom suiro.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1] == "False", done
