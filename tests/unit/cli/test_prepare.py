"""`suiro prepare` knows every module whose kernels compile when it is imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import wait_until

import suiro
from suiro.cli.prepare import KERNELS, _compile_modules


def test_every_module_with_kernels_is_prepared() -> None:
    root = Path(suiro.__file__).parent
    with_kernels = set()
    for path in root.rglob("*.py"):
        if "\n@compiled(" in path.read_text():
            # A folder of kernels is one import.
            module = path.parent if path.parent.name == "kernels" else path.with_suffix("")
            with_kernels.add(".".join(("suiro", *module.relative_to(root).parts)))
    assert with_kernels == set(KERNELS)


def test_modules_are_compiled_also_where_python_is_told_to_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    (tmp_path / "module.py").write_text("VALUE = 1\n")
    _compile_modules(tmp_path)
    assert list(tmp_path.glob("__pycache__/module.*.pyc"))


def test_ctrl_c_ends_it_and_what_it_started(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "suiro", "prepare", "--no-spark"],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "COMPILING": str(tmp_path)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )

    def compiling() -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                is_ours = f"COMPILING={tmp_path}".encode() in (path / "environ").read_bytes()
                if is_ours and b"import suiro." in (path / "cmdline").read_bytes():
                    found.append(path.name)
            except OSError:
                continue
        return found

    try:
        wait_until(compiling, 120, what="the processes that compile")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert errors == b"compiling modules and kernels\n"
    wait_until(lambda: not compiling(), 60, what="the end of the processes that compile")
