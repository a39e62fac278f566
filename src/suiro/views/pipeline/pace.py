"""The pace of a build: the throttle that an operator has set, and pauses while the live version falls behind.

The live version has priority. If it has lacked input records for longer than `LIVE_LAG_MS`, the version that is being
built is paused for `PAUSE_MS`. Then it runs for at least as long, so that it makes progress even on a slow machine. The
operator's throttle is in a separate file, so a host that is killed during a pause leaves no pause behind.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from suiro.errors import UsageError
from suiro.foundation.files import replace_file
from suiro.views.pipeline.throttle import write_throttle

LIVE_LAG_MS = 10_000
PAUSE_MS = 20_000
FILE = "throttle.asked"
RATE_MAX = 10**12
"""A pipeline fails at a throttle that it cannot read, such as one of more than 64 bits."""

_files = threading.Lock()
"""Held while both files change: an operator and a reconciler may write at the same time."""


def check_throttle(records_per_second: int | None) -> None:
    """Raises `UsageError`."""
    if records_per_second is not None and not 0 <= records_per_second <= RATE_MAX:
        raise UsageError(f"a throttle is records a second, 0 to pause and {RATE_MAX:,} at most")


def ask_throttle(folder: Path, records_per_second: int | None) -> None:
    """Sets the operator's throttle from the next micro-batch on. 0 pauses, None is no limit."""
    check_throttle(records_per_second)
    folder.mkdir(parents=True, exist_ok=True)
    with _files:
        write_throttle(folder, records_per_second)
        asked = folder / FILE
        if records_per_second is None:
            asked.unlink(missing_ok=True)
        else:
            replace_file(asked, f"{records_per_second}\n", sync=False)


class InputLag:
    """Measures for how long a version has lacked records of its inputs. The caller passes the times."""

    def __init__(self) -> None:
        self._ends: deque[tuple[int, int]] = deque()  # the time since which the inputs have so many records
        self.ms = 0

    def note(self, now_ms: int, done: int, total: int) -> None:
        """Notes how many of the `total` input records are in the output now."""
        if not self._ends or self._ends[-1][1] != total:
            self._ends.append((now_ms, total))
        while self._ends and self._ends[0][1] <= done:
            self._ends.popleft()
        self.ms = now_ms - self._ends[0][0] if self._ends else 0


class Pace:
    """Pauses the version in `folder` while it is built. After a restart of the host it is not paused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._since_ms: int | None = None  # of the pause, or of the run
        self.is_paused = False
        self._apply()

    def tend(self, now_ms: int, live_lag_ms: int) -> None:
        if self._since_ms is None:
            self._since_ms = now_ms
        if now_ms - self._since_ms < PAUSE_MS and not (self.is_paused and live_lag_ms == 0):
            return
        wanted = not self.is_paused and live_lag_ms > LIVE_LAG_MS
        if wanted != self.is_paused:
            self.is_paused, self._since_ms = wanted, now_ms
            self._apply()

    def _apply(self) -> None:
        """Writes the throttle when a pause begins or ends, and never between: then the operator's applies at once."""
        if self.is_paused:
            write_throttle(self._folder, 0)
            return
        asked = self._folder / FILE
        with _files:
            # Earlier releases left an empty file when they were killed.
            text = asked.read_text() if asked.exists() else ""
            write_throttle(self._folder, int(text) if text else None)
