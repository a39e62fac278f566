"""The next local segment to copy, and what of it is sent: Kafka's rule, and ours for compacted topics.

A segment is copied when it is closed, lies below the last stable offset (so that its aborted transactions are all
known), and everything before it is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from suiro.log import PartitionLog
from suiro.log.files import open_handle
from suiro.log.producer_snapshot import snapshot_path
from suiro.log.segment import Segment
from suiro.log.tier import RemoteLog, Source, leader_epochs_source


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSegment:
    """A closed segment with its offsets, `end_offset` excluded."""

    log: PartitionLog
    segment: Segment
    end_offset: int

    @property
    def start_offset(self) -> int:
        return self.segment.base_offset

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """The epochs that have records in the segment, and where each begins in it."""
        entries = self.log.leader_epochs.entries or [(self.log.leader_epoch, self.start_offset)]
        ends = [start for _, start in entries[1:]] + [self.end_offset]
        within = [
            (epoch, max(start, self.start_offset))
            for (epoch, start), end in zip(entries, ends, strict=True)
            if start < self.end_offset and end > self.start_offset
        ]
        return tuple(within) or ((self.log.epoch_of(self.start_offset), self.start_offset),)

    def sources(self) -> list[Source]:
        """The files as they are now, open, so that they can be sent whatever becomes of their names.

        Raises OSError where one is gone, and StorageError.
        """
        segment = self.segment
        segment.check_times()  # In the store nobody checks the age of the segment any more.
        segment.offset_index.flush()
        segment.time_index.flush()
        segment.transaction_index.flush()
        sources = []
        for kind, path, size in (
            ("log", segment.path, segment.size),
            ("index", segment.offset_index.path, None),
            ("timeindex", segment.time_index.path, None),
            ("txnindex", segment.transaction_index.path, None),
            ("snapshot", snapshot_path(self.log.directory, self.end_offset), None),
        ):
            if kind in ("txnindex", "snapshot") and not path.exists():
                continue
            handle = open_handle(path)
            sources.append(Source(kind=kind, handle=handle, size=path.stat().st_size if size is None else size))
        epochs = [entry for entry in self.log.leader_epochs.entries if entry[1] < self.end_offset]
        return [*sources, leader_epochs_source(epochs)]


def next_to_copy(log: PartitionLog, remote: RemoteLog) -> LocalSegment | None:
    """None where nothing is due."""
    if not log.config.copies_to_remote:
        return None
    copied = max(remote.next_offset, log.log_start_offset)
    limit, begin_limit = log.last_stable_offset, log.log_end_offset
    if log.config.compacted:
        # A segment that the cleaner has not seen yet would have to be fetched again to be cleaned. The cleaner may
        # have stopped in the middle of a segment, and the keys of that one count too.
        begin_limit = 0 if log.cleaning.is_running else log.cleaned_offset or 0
    segments = log.segments
    for segment, following in pairwise(segments):
        if following.base_offset <= copied:
            continue
        if following.base_offset > limit or segment.base_offset >= begin_limit:
            return None
        return LocalSegment(log=log, segment=segment, end_offset=following.base_offset)
    return None
