"""The throttle of a version: records per second, in a file of its folder that its planner reads repeatedly.

Without the file there is no limit. 0 pauses. The budget grows with time and shrinks by the records that are read. The
planner reads nothing until the budget is enough for a micro-batch of `WORTH_MS`. The budget is limited to `SAVED_MS`.
"""

from __future__ import annotations

from pathlib import Path

from suiro.errors import ConfigError
from suiro.foundation.files import replace_file
from suiro.numerals import natural

FILE = "throttle"
WORTH_MS = 500
SAVED_MS = 5_000


def write_throttle(folder: Path, records_per_second: int | None) -> None:
    """Sets the throttle from the next micro-batch on. None is no limit."""
    path = folder / FILE
    if records_per_second is None:
        path.unlink(missing_ok=True)
        return
    replace_file(path, f"{records_per_second}\n", sync=False)


def read_throttle(folder: Path) -> int | None:
    """Returns the records per second, None without a limit. Raises `ConfigError` if the file has no number."""
    path = folder / FILE
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return None
    rate = natural(text)
    if rate is None:
        raise ConfigError(f"{path} says {text[:40]!r}; it holds a number of records a second, or is not there")
    return rate


class Budget:
    """The number of records that one planner may read now."""

    def __init__(self) -> None:
        self._saved = 0.0
        self._looked_ms: int | None = None
        self._read_until = 0

    def allowed(self, rate: int, now_ms: int, position: int, available: int) -> int:
        """Returns how many records may be read now, at most; 0: not yet. `available`: the records that could be read.
        `position`: the number of records ever read from all partitions; its growth since the last call was spent."""
        if self._looked_ms is not None:
            self._saved += rate * (now_ms - self._looked_ms) / 1000
            self._saved -= max(0, position - self._read_until)
        self._saved = min(self._saved, rate * SAVED_MS / 1000)
        self._looked_ms, self._read_until = now_ms, position
        worth = min(available, max(1, rate * WORTH_MS // 1000))
        return int(self._saved) if available and self._saved >= worth else 0
