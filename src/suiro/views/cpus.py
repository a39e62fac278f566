"""CPUs that are kept for reads.

A look-up takes well under a millisecond of CPU. On a machine whose CPUs are all busy, it waits a hundred times as long
for one, because the many threads of the pipelines have their share. Niceness does not help: Linux weighs sessions
against each other, not the processes in them. So a host can keep to CPUs of its own, and start its children on the
others.

All threads of the host keep to these CPUs, not only those that answer. They share Python's lock: a thread that held the
lock and waited for a busy CPU would delay the answers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from suiro.errors import ConfigError

_of_others: frozenset[int] = frozenset()


def keep_for_reads(count: int) -> None:
    """From now on, this thread and the threads it starts run on `count` of its CPUs, and commands of `apart` on the
    others. 0 changes nothing. Raises `ConfigError`."""
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
    """Returns the command that starts a process on the other CPUs."""
    if not _of_others:
        return list(command)
    return ["taskset", "-c", ",".join(map(str, sorted(_of_others))), *command]
