"""Waiting for a condition, never for a time; and one condition that several tests wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.01
MOST_PAUSE_S = 0.5


def wait_until(
    condition: Callable[[], T],
    deadline_s: float = 30.0,
    what: str = "the condition",
    *,
    poll_s: float = POLL_S,
) -> T:
    """The first true value of `condition()`; fails naming `what` once `deadline_s` has passed.

    A condition that takes much work is looked at less often: what it waits for needs the processor."""
    ends = time.monotonic() + deadline_s
    while True:
        began_s = time.thread_time()
        value = condition()
        work_s = time.thread_time() - began_s
        if value:
            return value
        if time.monotonic() > ends:
            raise AssertionError(f"{what} did not come true within {deadline_s} s")
        threading.Event().wait(max(poll_s, min(2 * work_s, MOST_PAUSE_S)))


def is_running(pid: int) -> bool:
    """One that has ended, and that nobody has waited for, is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
