"""How fast a version is built: its throttle, pauses while the live version falls behind, the size of micro-batches.

- An operator's throttle is a file of the version's folder, which its planner reads repeatedly. Without the file there
  is no limit. 0 pauses. The budget grows with time and shrinks by the records that are read. The planner reads nothing
  until the budget is enough for a micro-batch of `WORTH_MS`. The budget is limited to `SAVED_MS`.
- The live version has priority. If it has lacked input records for longer than `LIVE_LAG_MS`, the version that is being
  built is paused for `PAUSE_MS`. Then it runs for at least as long, so that it makes progress even on a slow machine.
- The size of micro-batches for a long backlog doubles as long as a micro-batch stays short. A micro-batch has a fixed
  cost: Spark's planning, a task for each partition, a transaction, and an update of nearly every key in the output and
  in the store. A few large micro-batches rebuild a view with a fraction of the work. The limit is their duration: it
  grows with the memory that their records need, and a throttle or a pause takes effect only after the current one.
"""

from __future__ import annotations

from pathlib import Path

from suiro.errors import ConfigError, UsageError
from suiro.foundation.files import replace_file
from suiro.numerals import natural

THROTTLE, PAUSED = "throttle", "paused"
"""Files. A version is paused while the second one exists."""
RATE_MAX = 10**12
"""A pipeline fails at a throttle that it cannot read, such as one of more than 64 bits."""
WORTH_MS = 500
SAVED_MS = 5_000
LIVE_LAG_MS = 10_000
PAUSE_MS = 20_000
LONGEST_MS = 5_000
TIMES_MAX = 8


def check_throttle(records_per_second: int | None) -> None:
    """Raises `UsageError`."""
    if records_per_second is not None and not 0 <= records_per_second <= RATE_MAX:
        raise UsageError(f"a throttle is records a second, 0 to pause and {RATE_MAX:,} at most")


def ask_throttle(folder: Path, records_per_second: int | None) -> None:
    """Sets the operator's throttle from the next micro-batch on, also during a pause. 0 pauses, None is no limit."""
    check_throttle(records_per_second)
    folder.mkdir(parents=True, exist_ok=True)
    if records_per_second is None:
        (folder / THROTTLE).unlink(missing_ok=True)
    else:
        replace_file(folder / THROTTLE, f"{records_per_second}\n", sync=False)
    (folder / PAUSED).unlink(missing_ok=True)


def read_throttle(folder: Path) -> int | None:
    """Returns the records per second, None without a limit. Raises `ConfigError` if the file has no number."""
    if (folder / PAUSED).exists():
        return 0
    path = folder / THROTTLE
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


class Pace:
    """Pauses the version in `folder` while it is built. After a restart of the host it is not paused."""

    def __init__(self, folder: Path) -> None:
        self._paused = folder / PAUSED
        self._paused.unlink(missing_ok=True)
        self._since_ms: int | None = None  # of the pause, or of the run
        self.is_paused = False

    def tend(self, now_ms: int, live_lag_ms: int) -> None:
        if self._since_ms is None:
            self._since_ms = now_ms
        if now_ms - self._since_ms < PAUSE_MS and not (self.is_paused and live_lag_ms == 0):
            return
        wanted = not self.is_paused and live_lag_ms > LIVE_LAG_MS
        if wanted != self.is_paused:
            self.is_paused, self._since_ms = wanted, now_ms
            if wanted:
                self._paused.touch()
            else:
                self._paused.unlink(missing_ok=True)


class Stride:
    """The size for one planner. The caller passes the times."""

    def __init__(self, first: int) -> None:
        """`first`: the smallest limit."""
        self._first = first
        self._limit = first
        self._planned: tuple[int, int] | None = None  # when, and where the micro-batch began

    def limit(self, now_ms: int, position: int) -> int:
        """Returns the limit of the next micro-batch. `position`: the number of records ever read from all partitions.
        If it has grown since the last call, a micro-batch has ended."""
        if self._planned is not None:
            took_ms, read = now_ms - self._planned[0], position - self._planned[1]
            if read > 0 and took_ms > LONGEST_MS:
                self._limit = max(self._first, self._limit // 2)
            elif read > 0 and took_ms * 2 * self._limit <= LONGEST_MS * read:  # twice the limit would take this long
                self._limit = min(self._limit * 2, self._first * TIMES_MAX)
        self._planned = now_ms, position
        return self._limit
