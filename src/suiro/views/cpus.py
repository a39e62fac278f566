"""CPUs that are kept for reads.

A look-up takes well under a millisecond of CPU, and on a machine whose CPUs are all busy it waits a hundred times as
long for one: the pipelines' many threads have their share, too. Niceness does not help there (Linux weighs sessions
against each other, not what runs in them). So a host can be told to keep CPUs free of everything that it starts; its
answers are given on those.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from suiro.errors import ConfigError

__all__ = ["answer_here", "apart", "keep_for_reads", "work_elsewhere"]

_of_reads: frozenset[int] = frozenset()
_of_others: frozenset[int] = frozenset()


def keep_for_reads(count: int) -> None:
    """Of the CPUs that this process may use, for as long as it runs; 0: none. Raises `ConfigError`."""
    global _of_reads, _of_others
    if count == 0:
        _of_reads = _of_others = frozenset()
        return
    if not hasattr(os, "sched_setaffinity") or shutil.which("taskset") is None:
        raise ConfigError(f"--read-cpus {count} needs Linux and its command taskset; leave it out")
    cpus = sorted(os.sched_getaffinity(0))
    if not 0 < count < len(cpus):
        raise ConfigError(
            f"--read-cpus {count}: this process may use {len(cpus)} CPUs, and one must be left for the pipelines; give "
            f"0 to {len(cpus) - 1}"
        )
    _of_others, _of_reads = frozenset(cpus[:-count]), frozenset(cpus[-count:])


def answer_here() -> None:
    """The calling thread answers reads. Threads that it starts do as well, unless they say `work_elsewhere`."""
    if _of_reads:
        os.sched_setaffinity(0, _of_reads)


def work_elsewhere() -> None:
    """The calling thread answers no reads."""
    if _of_others:
        os.sched_setaffinity(0, _of_others)


def apart(command: Sequence[str]) -> list[str]:
    """The command of a process that answers no reads, as it must be started."""
    cpus = _of_others & os.sched_getaffinity(os.getpid()) if _of_others else ()  # some may be gone by now
    if not cpus:
        return list(command)
    return ["taskset", "-c", ",".join(map(str, sorted(cpus))), *command]
