"""The scenarios through franz-go (`support/franz`), built once a session."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

_SOURCE = Path(__file__).parent / "franz"


def franz() -> Path:
    """The program. Skips the test where it cannot be built."""
    found = _build()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@cache
def _build() -> Path | str:
    go = shutil.which("go")
    if go is None:
        return "franz-go's scenarios need Go"
    directory = tempfile.mkdtemp(prefix="suiro-franz-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    binary = Path(directory) / "franz"
    # Nobody debugs it, and debug information is a third of the work of an empty build cache.
    command = [go, "build", "-gcflags=all=-dwarf=false", "-ldflags=-w", "-o", str(binary), "."]
    built = subprocess.run(command, cwd=_SOURCE, capture_output=True, text=True)
    return binary if built.returncode == 0 else f"franz-go cannot be built here: {built.stderr[-500:]}"
