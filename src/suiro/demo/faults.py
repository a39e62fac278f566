"""Kills at the worst moment, and the proof that it was one.

A moment that lasts milliseconds cannot be hit by looking first and killing then: it may be over in between. So the
driver is stopped in its tracks (SIGSTOP), the log is asked whether a transaction is open, and only if it is, and
therefore stays open, something dies. Otherwise the driver goes on and the hunt as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Protocol

from suiro.client import LATEST, Client
from suiro.clock import Clock
from suiro.demo.names import PARTITIONS
from suiro.errors import FatalError

__all__ = ["OpenTransaction", "freeze_in_transaction", "open_transaction", "unfinished_micro_batch"]

HUNT_TIMEOUT_S = 60
LOOK_EVERY_S = 0.001
SETTLE_S = 0.05

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
    driver: Freezable, client: Client, topics: Sequence[str], *, clock: Clock
) -> OpenTransaction | None:
    """Returns with the driver frozen while a transaction of its on `topics` is open; None: it ended by itself."""
    deadline_ms = clock.monotonic_ms() + HUNT_TIMEOUT_S * 1000
    pause = Event()
    while clock.monotonic_ms() < deadline_ms:
        if driver.ended:
            return None
        if open_transaction(client, topics) is not None:
            driver.freeze()
            # What the driver sent before it froze may still decide the transaction: let that arrive, then look.
            pause.wait(SETTLE_S)
            found = open_transaction(client, topics)
            if found is not None:
                return found
            driver.resume()
        pause.wait(LOOK_EVERY_S)
    raise FatalError(f"no open transaction was seen on {', '.join(topics)} within {HUNT_TIMEOUT_S} s")


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
