"""A service that is told to stop while it is still starting exits with 0, as it does later: no import is too early."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Python runs it before all else. It counts what the command imports, and sends the signal at the chosen import.
AT_IMPORT = """
import os, sys

class Counting:
    left = int(os.environ["AT_IMPORT"])
    began = False

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        cls.began = cls.began or name.startswith("suiro.cli.")
        if cls.began:
            cls.left -= 1
            if cls.left == 0:
                os.kill(os.getpid(), int(os.environ["SIGNAL"]))

sys.meta_path.insert(0, Counting)
"""

SERVICES = {
    "node": ["node", "--listen", "127.0.0.1:0"],
    "registry": ["registry", "--bootstrap-servers", "127.0.0.1:1", "--listen", "127.0.0.1:0"],
    "capture": [
        *(
            "capture",
            "postgres",
            "--dsn",
            "postgresql://127.0.0.1:1/none",
            "--bootstrap-servers",
            "127.0.0.1:1",
        ),
        *("--registry", "http://127.0.0.1:1", "--topic-prefix", "p"),
    ],
    "connect": ["connect", "run", "connectors.toml"],
    "run": ["run", "app.py"],
    "kafka": ["kafka", "up"],
    "view": ["view", "serve", "--bootstrap-servers", "127.0.0.1:1", "--data", "views"],
}


def started(folder: Path, arguments: list[str], *, at_import: int, number: int) -> subprocess.Popen[bytes]:
    (folder / "sitecustomize.py").write_text(AT_IMPORT)
    (folder / "app.py").write_text("def build(builder):\n    builder.stream('a').to('b')\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "AT_IMPORT": str(at_import),
        "SIGNAL": str(int(number)),
        "TMPDIR": str(folder),
    }
    command = [sys.executable, "-m", "suiro", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("at_import", [1, 30, 100])
@pytest.mark.parametrize("name", SERVICES)
def test_a_service_that_is_starting_stops(name: str, at_import: int, tmp_path: Path) -> None:
    number = signal.SIGINT if at_import == 30 else signal.SIGTERM
    process = started(tmp_path, SERVICES[name], at_import=at_import, number=number)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (0, b"", b"")
    assert not list(tmp_path.glob("suiro-*"))  # no temporary directory stays


@pytest.mark.parametrize(("at_import", "number"), [(1, signal.SIGTERM), (30, signal.SIGINT), (100, signal.SIGTERM)])
def test_what_is_to_process_all_says_that_it_did_not(at_import: int, number: int, tmp_path: Path) -> None:
    process = started(tmp_path, ["run", "app.py", "--until-done"], at_import=at_import, number=number)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, b"")
    assert errors == b"suiro run: stopped before all was processed; run it again to continue\n"


def test_other_commands_say_that_they_were_killed(tmp_path: Path) -> None:
    process = started(tmp_path, ["log", "import", "a", "b"], at_import=30, number=signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
