"""File descriptors: the limit of the process, and how it is divided.

Connections and files use the same limit. A process whose connections use all descriptors cannot open a segment, so it
cannot write. So each has a share; the rest is for folders, pipes and other sockets.
"""

from __future__ import annotations

import resource

MOST = 1 << 20
"""As many as Linux gives to one process unless told otherwise; a container's limit may be a number without meaning."""
_MOST_FILES = 8192
_FEWEST_FILES = 64
_MOST_SPARE = 512
_FEWEST_CONNECTIONS = 16


def raise_limit() -> None:
    """Allow this process, and those that it starts, as many descriptors as it may allow itself: services call it
    first. The usual soft limit of 1,024 is there for programs that use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """How many this process may have now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def for_files(of: int | None = None) -> int:
    """Files of logs that may be open at the same time; `of` so many descriptors, else the limit."""
    return max(min((of or limit()) // 2, _MOST_FILES), _FEWEST_FILES)


def for_connections(of: int | None = None) -> int:
    """Connections of clients that may be open at the same time."""
    of = of or limit()
    return max(of - for_files(of) - min(of // 8, _MOST_SPARE), _FEWEST_CONNECTIONS)
