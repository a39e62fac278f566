"""Kills a process at the worst moment, and proves that it was one.

A moment of milliseconds cannot be hit by looking first and killing then: it may be over in between. So the process is
stopped (SIGSTOP), and the log is asked whether a transaction is open. If one is open, it stays open, and the kill
follows. Otherwise the process continues, and the search is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Protocol, TypeVar

from suiro.client import LATEST, Client
from suiro.clock import Clock
from suiro.demo.names import PARTITIONS
from suiro.errors import FatalError

__all__ = [
    "OpenTransaction",
    "finished_micro_batches",
    "freeze_in_transaction",
    "freeze_when",
    "open_transaction",
    "readable_end",
    "unfinished_micro_batch",
]

HUNT_TIMEOUT_S = 600  # on a machine with nothing else to do it takes seconds
LOOK_EVERY_S = 0.001
SETTLE_S = 0.05

T = TypeVar("T")

OpenTransaction = tuple[str, int, int, int]  # topic, partition, last stable offset, end of the log


class Freezable(Protocol):
    @property
    def ended(self) -> bool: ...
    def freeze(self) -> None: ...
    def resume(self) -> None: ...


def open_transaction(client: Client, topics: Sequence[str]) -> OpenTransaction | None:
    """A partition of `topics` whose last stable offset is short of its end: a transaction is open there."""
    wanted = dict.fromkeys(
        ((topic, partition) for topic in topics for partition in range(PARTITIONS)), LATEST
    )
    stable = client.list_offsets(wanted, read_committed=True)
    end = client.list_offsets(wanted, read_committed=False)
    for (topic, partition), listed in end.items():
        last_stable = stable[topic, partition].offset
        if last_stable < listed.offset:
            return topic, partition, last_stable, listed.offset
    return None


def freeze_in_transaction(
    process: Freezable,
    client: Client,
    topics: Sequence[str],
    *,
    clock: Clock,
    feed: Callable[[], None] = lambda: None,
) -> OpenTransaction | None:
    """Returns with the process frozen while a transaction on `topics` is open; None: it ended by itself. `feed` is
    called before each look: a process that has nothing to do opens no transaction."""

    def look() -> OpenTransaction | None:
        feed()
        return open_transaction(client, topics)

    return freeze_when(process, look, f"open transaction on {', '.join(topics)}", clock=clock)


def freeze_when(
    process: Freezable,
    look: Callable[[], T | None],
    what: str,
    *,
    clock: Clock,
    until: Callable[[], bool] = lambda: False,
    settle_s: float = SETTLE_S,
) -> T | None:
    """Returns what `look` found, with the process frozen in that moment; None: it ended by itself, or `until` came."""
    deadline_ms = clock.monotonic_ms() + HUNT_TIMEOUT_S * 1000
    pause = Event()
    while clock.monotonic_ms() < deadline_ms:
        if process.ended or until():
            return None
        if look() is not None:
            process.freeze()
            # What it sent before it froze may still change what there is: let that arrive, then look.
            pause.wait(settle_s)
            found = look()
            if found is not None:
                return found
            process.resume()
        pause.wait(LOOK_EVERY_S)
    raise FatalError(f"no {what} was seen within {HUNT_TIMEOUT_S} s")


def readable_end(client: Client, topic: str) -> int:
    """How far a read_committed reader gets in `topic`, in offsets of all partitions together."""
    wanted = dict.fromkeys(((topic, partition) for partition in range(PARTITIONS)), LATEST)
    return sum(listed.offset for listed in client.list_offsets(wanted, read_committed=True).values())


def unfinished_micro_batch(checkpoint: Path) -> int | None:
    """The micro-batch that was planned (`offsets/N`) but not finished (`commits/N`), if there is one."""
    planned, finished = (_numbers(checkpoint / name) for name in ("offsets", "commits"))
    left = planned - finished
    return max(left) if left and max(left) > max(finished, default=-1) else None


def finished_micro_batches(checkpoint: Path) -> int:
    """How many micro-batches a query has finished: their numbers start at 0."""
    return max(_numbers(checkpoint / "commits"), default=-1) + 1


def _numbers(directory: Path) -> set[int]:
    if not directory.is_dir():
        return set()
    return {int(path.name) for path in directory.iterdir() if path.name.isdigit()}
