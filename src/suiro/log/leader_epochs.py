"""The start offset of each leader epoch: `leader-epoch-checkpoint`, in Kafka's text format.

A consumer that comes back after a restart asks where its epoch ended (KIP-320); the answer is the start of the next
one. A log that this node has begun is in epoch 0 until an unclean stop, which may lose records that were read: then a
later epoch begins. A log of Apache Kafka goes on in its latest epoch, because clients do not accept a lower one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from suiro.log.checkpoints import read_or_set_aside, write_checkpoint
from suiro.log.errors import StorageError

FILE_NAME = "leader-epoch-checkpoint"


class LeaderEpochs:
    """(epoch, start offset) pairs, both ascending."""

    def __init__(self, directory: Path) -> None:
        self._path = f"{directory}/{FILE_NAME}"
        rows = read_or_set_aside(
            Path(self._path), columns=2, then="the leader epochs are found again in the log's batches"
        )
        self.damaged = rows is None
        self.entries: list[tuple[int, int]] = [(int(epoch), int(start)) for epoch, start in rows or ()]
        self._is_stale = False  # the file, which could not be corrected

    @property
    def latest(self) -> int:
        """-1 before the first append."""
        return self.entries[-1][0] if self.entries else -1

    def lacks(self, epoch: int) -> bool:
        """Whether `add` must come before an append in this epoch."""
        return self._is_stale or epoch > self.latest

    def add(self, *begun: tuple[int, int]) -> None:
        """(epoch, start offset) of new epochs. Older ones that would begin at or after them are dropped."""
        before = self.entries
        try:
            self._replace(_with(before, begun))
        except OSError as error:
            self.entries = before
            raise StorageError(f"cannot note the leader epoch in {self._path}: {error.strerror}") from error

    def end_offset(self, epoch: int, *, current: int, log_end_offset: int) -> tuple[int, int] | None:
        """(largest epoch at most `epoch`, where it ended); None for one that has not begun.

        `current` is the epoch of new appends, even before the first of them. An epoch older than all known ones ended
        where the first of these began.
        """
        if epoch == current:
            return epoch, log_end_offset
        if epoch < 0 or epoch > current:
            return None
        end = next((start for later, start in self.entries if later > epoch), log_end_offset)
        return max((known for known, _ in self.entries if known <= epoch), default=epoch), end

    def epoch_of(self, offset: int, *, current: int) -> int:
        """Returns the epoch that an offset was written in, or the current one if that is not known."""
        return max((epoch for epoch, start in self.entries if start <= offset), default=current)

    def correct(self, found: Sequence[tuple[int, int]], *, log_end_offset: int) -> None:
        """At a start: forget epochs that began behind the log's end, whose batches were cut off, and add those that
        were found in the batches, or in the remote tier.

        One that begins at the end stays, though it has no batch yet: clients may have heard of it.
        """
        kept = [entry for entry in self.entries if entry[1] <= log_end_offset]
        try:
            self._replace(_with(kept, found))
        except OSError:
            self._is_stale = True

    def cut_start(self, log_start_offset: int) -> None:
        """Forget epochs that ended before the log's start; the one in force there now begins there."""
        later = [entry for entry in self.entries if entry[1] > log_start_offset]
        earlier = self.entries[: len(self.entries) - len(later)]
        # On a full disk the file keeps its old rows, which do no harm. The deletion that makes room goes on.
        with contextlib.suppress(OSError):
            self._replace([(earlier[-1][0], log_start_offset), *later] if earlier else later)

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        """Raises OSError; then the file has its old entries."""
        if self._is_stale or entries != self.entries:
            self.entries = entries
            write_checkpoint(Path(self._path), [f"{epoch} {start}" for epoch, start in entries])
            self._is_stale = False


def _with(entries: list[tuple[int, int]], begun: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    for epoch, start in begun:
        if not entries or epoch > entries[-1][0]:
            entries = [*(entry for entry in entries if entry[1] < start), (epoch, start)]
    return entries
