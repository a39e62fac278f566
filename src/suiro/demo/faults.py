"""Finds the worst moment to kill a process, and verifies it.

A moment of milliseconds may pass between a look and a kill. So the process is stopped (SIGSTOP), and the log is asked
again whether a transaction is open. If it is, it stays open, and the kill follows. Otherwise the process and the search
continue. On a busy machine a look takes longer than a transaction: after two missed moments, the process is stopped
before each look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from suiro.client import LATEST, Client
from suiro.clock import monotonic_s, sleep_s
from suiro.demo.names import PARTITIONS
from suiro.demo.processes import Session
from suiro.errors import FatalError

HUNT_TIMEOUT_S = 600  # takes seconds on an idle machine
LOOK_EVERY_S = 0.001  # the transaction of a small micro-batch is open for milliseconds
SETTLE_S = 0.05
MISSES_MAX = 2
RUNS_S = 0.004  # between two stops

T = TypeVar("T")


class OpenTransaction(NamedTuple):
    topic: str
    partition: int
    last_stable: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} ends at {self.end:,}, decided up to {self.last_stable:,}"


def open_transaction(client: Client, *topics: str) -> OpenTransaction | None:
    """Returns a partition whose last stable offset is before its end."""
    stable = _ends(client, topics, read_committed=True)
    for place, end in _ends(client, topics, read_committed=False).items():
        if stable[place] < end:
            return OpenTransaction(*place, stable[place], end)
    return None


def readable_ends(client: Client, topic: str) -> dict[int, int]:
    """Returns the end of each partition for a read_committed reader."""
    return {partition: end for (_, partition), end in _ends(client, [topic], read_committed=True).items()}


def _ends(client: Client, topics: Sequence[str], *, read_committed: bool) -> dict[tuple[str, int], int]:
    wanted = {(topic, partition): LATEST for topic in topics for partition in range(PARTITIONS)}
    listed = client.list_offsets(wanted, read_committed=read_committed)
    return {place: item.offset for place, item in listed.items()}


def freeze_when(
    process: Session,
    look: Callable[[], T | None],
    what: str,
    *,
    until: Callable[[], bool] = lambda: False,
    settle_s: float = SETTLE_S,
) -> T | None:
    """Freezes the process when `look` finds something, and returns that. None: the process ended, or `until` became
    true."""
    ends_s = monotonic_s() + HUNT_TIMEOUT_S
    misses = 0
    while monotonic_s() < ends_s:
        if process.ended or until():
            return None
        stops_first = misses >= MISSES_MAX
        if stops_first or look() is not None:
            process.freeze()
            if look() is not None:
                sleep_s(settle_s)  # data sent before the freeze may still arrive
                if (found := look()) is not None:
                    return found
            process.resume()
            misses += 1
        sleep_s(RUNS_S if stops_first else LOOK_EVERY_S)
    raise FatalError(f"no {what} was seen within {HUNT_TIMEOUT_S} s")


def unfinished_micro_batch(checkpoint: Path) -> int | None:
    """Returns the micro-batch that was planned (`offsets/N`) but not finished (`commits/N`), or None."""
    planned, finished = (max(_numbers(checkpoint / name), default=-1) for name in ("offsets", "commits"))
    return planned if planned > finished else None


def finished_micro_batches(checkpoint: Path) -> int:
    """Returns how many micro-batches a query has finished: their numbers start at 0."""
    return max(_numbers(checkpoint / "commits"), default=-1) + 1


def _numbers(directory: Path) -> set[int]:
    names = directory.iterdir() if directory.is_dir() else ()
    return {int(path.name) for path in names if path.name.isdigit()}
