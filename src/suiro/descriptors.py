"""File descriptors: the limit of the process, and how it is divided.

Connections and files share the same limit. If connections use all descriptors, a process cannot open a segment, so it
cannot write. So each has a share; the rest is for folders, pipes and other sockets.
"""

from __future__ import annotations

import os
import resource

MOST = 1 << 20
"""The default maximum of Linux for one process. The limit of a container may be a meaningless number."""
_MOST_FILES = 8192
_FEWEST_FILES = 64
_MOST_SPARE = 512
_FEWEST_CONNECTIONS = 16


def raise_limit() -> None:
    """Raises the soft limit of this process, and of those that it starts, to the hard limit. Services call it first.
    The usual soft limit of 1,024 exists for programs that use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """Returns the current limit of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def open_now() -> int:
    """Returns how many descriptors this process has open; its limit if that cannot be known, as when none is left."""
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return limit()


def for_files(of: int | None = None) -> int:
    """Returns how many files of logs may be open at the same time, of `of` descriptors or the limit."""
    return max(min((of or limit()) // 2, _MOST_FILES), _FEWEST_FILES)


def for_connections(of: int | None = None) -> int:
    """Returns how many connections of clients may be open at the same time."""
    of = of or limit()
    return max(of - for_files(of) - spare(of), _FEWEST_CONNECTIONS)


def spare(of: int | None = None) -> int:
    """Returns how many are neither for files nor for connections."""
    return min((of or limit()) // 8, _MOST_SPARE)
