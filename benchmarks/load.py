"""The load under which a benchmark ran: figures from a machine with other work on it are not to be compared."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from time import monotonic


def run(benchmark: Callable[[], int | None]) -> int:
    """Runs it, then says what other processes took of the CPUs meanwhile. Returns its exit code, None as 0."""
    average, began, busy, own = os.getloadavg()[0], monotonic(), _busy_s(), _own_s()
    try:
        return benchmark() or 0
    finally:
        seconds = monotonic() - began
        others = max(0.0, (_busy_s() - busy) - (_own_s() - own)) / seconds
        print(
            f"load: {os.cpu_count()} CPUs; other processes used {others:.2f} of them during {seconds:.0f} s "
            f"(load average before: {average:.2f})",
            flush=True,
        )


def _busy_s() -> float:
    """CPU seconds of all processes since the start of the machine; 0 where there is no /proc/stat."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, *_ = (int(text) for text in path.read_text().split()[1:9])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """CPU seconds of this process and of its descendants that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
