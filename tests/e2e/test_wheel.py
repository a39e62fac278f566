"""A stranger's first minute, without a checkout: the built wheel in empty environments, by pip, uvx and pipx."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tools import packages, release
from tools.packages import ROOT, Packages

pytestmark = pytest.mark.soak  # each of them installs Spark: minutes of CI's

CONSTRAINTS = ROOT / "constraints.txt"
FLIGHTS = 2_000
TIMEOUT_S = 1_800


def _run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """In the environment of somebody who has never heard of this checkout."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**inherited, **(env or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return packages.build(ROOT, tmp_path_factory.mktemp("built"), epoch=0)


@pytest.fixture(scope="module")
def launchers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `uvx` and `pipx` are."""
    folder = tmp_path_factory.mktemp("launchers")
    venv.create(folder, with_pip=True)
    _run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "uv", "pipx", cwd=folder)
    return folder / "bin"


@pytest.mark.spark
@pytest.mark.timeout(TIMEOUT_S)
def test_the_wheel_runs_the_readme(built: Packages, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = ("-m", "pip", "install", "--quiet", "-c", CONSTRAINTS, f"{built.wheel}[demo]")
    _run(python, *install, cwd=tmp_path)

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^<!-- runs: .*test_wheel.py -->\n```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert block is not None
    script = tmp_path / "empty" / "ten_lines.py"
    script.parent.mkdir()
    script.write_text(block.group(1), encoding="utf-8")
    printed = _run(python, script, cwd=script.parent)
    assert printed.splitlines()[-1] == "['ADA', 'BARBARA', 'GRACE']"


@pytest.mark.timeout(TIMEOUT_S)
def test_the_wheel_by_itself_is_a_node(built: Packages) -> None:
    """What each release is tried with."""
    release.try_wheel(built.wheel, CONSTRAINTS, packages.version_of(built.wheel))


@pytest.mark.spark
@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize("launcher", ["uvx", "pipx"])
def test_one_command_runs_the_demo(launcher: str, built: Packages, launchers: Path, tmp_path: Path) -> None:
    what = f"{built.wheel}[demo]"
    command: list[str | Path] = {
        "uvx": ["uvx", "--constraints", CONSTRAINTS, "--from", what],
        "pipx": ["pipx", "run", "--pip-args", f"--constraint {CONSTRAINTS}", "--spec", what],
    }[launcher]
    printed = _run(
        launchers / command[0],
        *command[1:],
        *("suiro", "demo", "--plain", "--flights", str(FLIGHTS), "--data", tmp_path / "demo"),
        cwd=tmp_path,
        env={
            "HOME": str(tmp_path),
            "PIPX_DEFAULT_PYTHON": sys.executable,
            "PIPX_HOME": str(tmp_path / "pipx"),
            "UV_CACHE_DIR": str(tmp_path / "uv"),
            "UV_PYTHON": sys.executable,
        },
    )
    last = json.loads(printed.splitlines()[-1])
    assert last["ok"] is True
    assert last["raw"] == FLIGHTS
    assert (last["lost"], last["duplicates"], last["differences"]) == (0, 0, 0)
