"""`suiro prepare` knows every module whose kernels compile when it is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

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
