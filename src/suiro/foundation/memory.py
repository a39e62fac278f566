"""How much memory there is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of version 2 and version 1 of Linux' control groups."""


def memory_bytes(limits: Sequence[Path] = _CONTAINER_LIMITS) -> int:
    """Main memory of the machine, or less where the container has a limit. 0 if the system does not tell."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        found = 0
    for path in limits:
        try:
            limit = int(path.read_text())
        except (OSError, ValueError):  # there is no such file, or it says "max"
            continue
        found = min(found, limit) if found > 0 else limit
    return max(found, 0)
