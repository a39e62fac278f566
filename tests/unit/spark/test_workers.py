"""A session whose workers run another Python is refused when the format is registered, with what to set."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suiro.errors import UsageError
from suiro.spark.session import require_same_python


def session(python: str, master: str = "local[2]") -> Any:
    return SimpleNamespace(_sc=SimpleNamespace(master=master, pythonExec=python))


def script(folder: Path, text: str) -> str:
    found = folder / "python"
    found.write_text(f"#!/bin/sh\n{text}\n")
    found.chmod(0o755)
    return str(found)


def test_the_drivers_own_python_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", None)
    require_same_python(session(sys.executable))


def test_another_name_of_it_will_do(tmp_path: Path) -> None:
    require_same_python(session(script(tmp_path, f'exec {sys.executable} "$@"')))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'exec {sys.executable} -I -S "$@"', "which has no suiro"),
        ("echo 3.6", "which is Python 3.6"),
        ("exit 1", "no Python that starts"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_set(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        require_same_python(session(script(tmp_path, text)))
    assert f"PYSPARK_PYTHON={sys.executable}" in str(refused.value)


def test_one_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="'/nowhere/python', which is not on the path"):
        require_same_python(session("/nowhere/python"))


@pytest.mark.parametrize("other", [SimpleNamespace(), session("/nowhere/python", "spark://far:7077")])
def test_workers_elsewhere_are_not_looked_at(other: Any) -> None:
    require_same_python(other)
