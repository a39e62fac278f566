"""CPUs that are kept for reads.

A look-up takes well under a millisecond of CPU, and on a machine whose CPUs are all busy it waits a hundred times as
long for one: the pipelines' many threads have their share, too. Niceness does not help there (Linux weighs sessions
against each other, not what runs in them). So a host can be told to keep to CPUs of its own, and to start whatever it
starts on the others.

All of the host's threads keep to them, not only those that answer: they share Python's lock, and one of them that held
it while it waited for a busy CPU would hold up the answers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from suiro.errors import ConfigError

_of_others: frozenset[int] = frozenset()


def keep_for_reads(count: int) -> None:
    """From now on this thread, and what it starts, runs on so many of its CPUs; and a command of `apart` on the others.

    0: nothing is kept. Raises `ConfigError`.
    """
    global _of_others
    if count == 0:
        return
    if not hasattr(os, "sched_setaffinity") or shutil.which("taskset") is None:
        raise ConfigError(f"--read-cpus {count} needs Linux and its command taskset; leave it out")
    cpus = sorted(os.sched_getaffinity(0))
    if not 0 < count < len(cpus):
        raise ConfigError(
            f"--read-cpus {count}: this process may use {len(cpus)} CPUs, and one must be left for the pipelines; give "
            f"0 to {len(cpus) - 1}"
        )
    _of_others = frozenset(cpus[:-count])
    os.sched_setaffinity(0, cpus[-count:])


def apart(command: Sequence[str]) -> list[str]:
    """The command of a process that answers no reads, as it must be started."""
    if not _of_others:
        return list(command)
    return ["taskset", "-c", ",".join(map(str, sorted(_of_others))), *command]
