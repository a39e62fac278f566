"""`suiro prepare` knows every module whose kernels compile when it is imported."""

from __future__ import annotations

from pathlib import Path

import suiro
from suiro.cli.prepare import KERNELS


def test_every_module_with_kernels_is_prepared() -> None:
    root = Path(suiro.__file__).parent
    with_kernels = set()
    for path in root.rglob("*.py"):
        if "\n@compiled(" in path.read_text():
            # A folder of kernels is one import.
            module = path.parent if path.parent.name == "kernels" else path.with_suffix("")
            with_kernels.add(".".join(("suiro", *module.relative_to(root).parts)))
    assert with_kernels == set(KERNELS)
