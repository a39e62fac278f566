"""Which leader epoch began at which offset: `leader-epoch-checkpoint`, in Kafka's text format.

A consumer that comes back after a restart asks where its epoch ended (KIP-320); the answer is the
start of the next one.
"""

from __future__ import annotations

from pathlib import Path

from suiro.log.checkpoints import read_checkpoint, write_checkpoint

FILE_NAME = "leader-epoch-checkpoint"


class LeaderEpochs:
    """(epoch, start offset) pairs, both ascending."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self.entries: list[tuple[int, int]] = [
            (int(epoch), int(start)) for epoch, start in read_checkpoint(self._path, columns=2)
        ]

    @property
    def latest(self) -> int:
        """-1 before the first append."""
        return self.entries[-1][0] if self.entries else -1

    def add(self, epoch: int, start_offset: int) -> None:
        """The first append of a new epoch. Older epochs that would begin at or after it are dropped."""
        if epoch <= self.latest:
            return
        self.entries = [entry for entry in self.entries if entry[1] < start_offset]
        self.entries.append((epoch, start_offset))
        self._write()

    def end_offset(self, epoch: int, *, log_end_offset: int) -> tuple[int, int] | None:
        """(largest epoch at most `epoch`, where it ended), or None where that is not known."""
        found: tuple[int, int] | None = None
        for number, (entry_epoch, _) in enumerate(self.entries):
            if entry_epoch > epoch:
                break
            end = self.entries[number + 1][1] if number + 1 < len(self.entries) else log_end_offset
            found = (entry_epoch, end)
        return found if epoch <= self.latest else None

    def epoch_of(self, offset: int) -> int:
        """The epoch an offset was written in; -1 where it is not known."""
        return max((epoch for epoch, start in self.entries if start <= offset), default=-1)

    def cut_end(self, log_end_offset: int) -> None:
        """Forget epochs that began at or after the log's end (their batches were cut off)."""
        kept = [entry for entry in self.entries if entry[1] < log_end_offset]
        if len(kept) != len(self.entries):
            self.entries = kept
            self._write()

    def cut_start(self, log_start_offset: int) -> None:
        """Forget epochs that ended before the log's start; the one in force there now begins there."""
        later = [entry for entry in self.entries if entry[1] > log_start_offset]
        earlier = self.entries[: len(self.entries) - len(later)]
        kept = [(earlier[-1][0], log_start_offset), *later] if earlier else later
        if kept != self.entries:
            self.entries = kept
            self._write()

    def _write(self) -> None:
        write_checkpoint(self._path, [f"{epoch} {start}" for epoch, start in self.entries])
