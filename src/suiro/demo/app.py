"""The user's file with the view: first with its bug, then with the line that fixes it."""

from __future__ import annotations

import difflib
from pathlib import Path

from suiro.demo.names import VIEW

__all__ = ["BUG", "FIX", "App"]

BUG = "DEPARTED = lit(1)\n"
FIX = "DEPARTED = when(IS_CANCELLED, 0).otherwise(1)\n"

_FILE = Path(__file__).with_name(f"{VIEW}.py")


class App:
    """A copy of `carrier_delays.py` in `folder`, to be deployed, mended and deployed again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / _FILE.name
        self.path.write_text(_FILE.read_text(encoding="utf-8"), encoding="utf-8")

    @property
    def entry(self) -> str:
        """As `suiro view deploy` takes it."""
        return f"{self.path}:{VIEW}"

    def mend(self) -> list[str]:
        """The lines that changed, as a diff has them."""
        before = self.path.read_text(encoding="utf-8")
        after = before.replace(BUG, FIX)
        assert after != before
        self.path.write_text(after, encoding="utf-8")
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
        return list(lines)[3:]
