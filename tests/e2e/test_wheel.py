"""A stranger's first minute: the built wheel in a fresh virtual environment, and the ten lines of the README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 900


def _run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.spark
@pytest.mark.soak  # a second installation of Spark: two minutes of CI's
@pytest.mark.timeout(TIMEOUT_S)
def test_the_wheel_runs_the_readme(tmp_path: Path) -> None:
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("suiro-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = ("-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{wheel}[demo]")
    _run(python, *install, cwd=tmp_path)

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(
        r"^<!-- runs: .*test_wheel.py -->\n```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL
    )
    assert block is not None
    script = tmp_path / "empty" / "ten_lines.py"
    script.parent.mkdir()
    script.write_text(block.group(1), encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    printed = _run(python, script, cwd=script.parent, env=inherited)
    assert printed.splitlines()[-1] == "['ADA', 'BARBARA', 'GRACE']"
    assert _run(tmp_path / "venv" / "bin" / "suiro", "--version", cwd=tmp_path).strip()
