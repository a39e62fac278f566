"""Whose the Python processes of a JVM are that several programs share (`shared_jvm`): told apart by their folders.

The server (`python_server`) forks them all, so it is here that those of one program are ended, or get its priority.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


class ProcessGroups:
    """In the server. `""` is the folder of a JVM that is one program's."""

    def __init__(self) -> None:
        self._folders: dict[int, str] = {}  # of processes that run
        self._niceness: dict[str, int] = {}

    def niceness(self, folder: str) -> int:
        return self._niceness.get(folder, 0)

    def add(self, pid: int, folder: str) -> None:
        self._folders[pid] = folder

    def discard(self, pid: int) -> None:
        self._folders.pop(pid, None)

    def end(self, folder: str, *, with_daemons: bool) -> int:
        """Kill them, and their workers. Return how many there were.

        Daemons have imported nothing of the program. One that comes back needs them: Spark starts none again.
        """
        found = self._of(folder)
        for pid in found:
            for member in list(_with_workers(pid)):
                with suppress(OSError):
                    if member != pid or with_daemons or os.getpgid(pid) != pid:
                        os.kill(member, signal.SIGKILL)
        return len(found)

    def set_niceness(self, folder: str, niceness: int) -> int:
        """Of those that run, where the system lets it, and of those that are still to be forked."""
        self._niceness[folder] = niceness
        found = self._of(folder)
        for pid in found:
            for member in _with_workers(pid):
                set_niceness(member, niceness)
        return len(found)

    def _of(self, folder: str) -> list[int]:
        return [pid for pid, its in self._folders.items() if its == folder]


def set_niceness(pid: int, niceness: int) -> None:
    """Of all its threads: Linux has a priority for each. Only root may raise it again."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(task.name), niceness)


def _with_workers(pid: int) -> Iterator[int]:
    yield pid
    for entry in Path("/proc").glob("[0-9]*"):
        member = int(entry.name)
        with suppress(OSError):
            if member != pid and os.getpgid(member) == pid:
                yield member
