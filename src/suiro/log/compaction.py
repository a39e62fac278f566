"""The rules of compaction: which log is the dirtiest, how far it may be cleaned, and in which segment groups.

Kafka's LogCleanerManager and Cleaner. Pure: facts in, decisions out. `cleaning` does the work in a process of its own
(`cleaning_process`); a `CleaningJob` describes it, and messages tell what is done. A cleaning follows these rules:

- Below the cleaned offset, the latest record of each key stays, with its offset and in its order.
- A record with a null value stays until `delete.retention.ms` after it was first cleaned, so that a reader who began
  before sees the deletion (KIP-534: the time is written into the batch).
- Records of aborted transactions go. Their markers go when nothing else is left of them, after the same time.
"""

from __future__ import annotations

import pickle  # over a pipe to a child process of the same installation; never kept
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from suiro.config import MAX_INT
from suiro.log.config import LogConfig
from suiro.log.transaction_index import AbortedTransaction

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionFacts:
    """The state of a log. `segments` are (base offset, size, largest timestamp), the active one last."""

    segments: Sequence[tuple[int, int, int]]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    first_batches: Sequence[tuple[int, int]] = ()
    """(base offset, timestamp of the first batch) of the segments before the active one; only where
    max.compaction.lag.ms is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirtiness:
    """The part of a log to clean: offsets from `first_dirty_offset` to `first_uncleanable_offset`, a segment's base."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        return self.cleanable_bytes > 0 and (self.overdue or self.ratio > config.min_cleanable_dirty_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """The node's `log.cleaner.*` that the work itself needs; sizes in bytes."""

    dedupe_buffer_bytes: int = 128 << 20
    io_buffer_bytes: int = 512 << 10
    load_factor: float = 0.9
    max_bytes_per_second: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSource:
    """A segment to be cleaned: sizes in bytes, as they are on disk."""

    base_offset: int
    size: int
    offset_index_size: int
    time_index_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """The input of `cleaning`. Times in milliseconds since the epoch, sizes in bytes.

    `transaction_indexes` are the `.txnindex` files from the log's start to its end: the marker of an aborted
    transaction may lie behind what is cleaned. `begins_in_tier`: older records are in the remote tier, and may be of
    transactions whose markers are here. `last_of_producers`: (producer id, offset of its last data or -1,
    producer epoch) of each producer the log remembers.
    """

    directory: Path
    sources: tuple[SegmentSource, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    transaction_indexes: tuple[Path, ...]
    last_of_producers: tuple[tuple[int, int, int], ...]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    settings: CleanerSettings
    begins_in_tier: bool = False

    def aborted_in_tier(self, aborted: Iterable[AbortedTransaction]) -> set[int]:
        """The producers whose first marker here ends a transaction that has records in the remote tier. Its entry in
        the index must stay, or those would pass for committed."""
        first = self.sources[0].base_offset if self.begins_in_tier else 0
        return {one.producer_id for one in aborted if one.first_offset < first}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCleaned:
    """One group's `.cleaned` files are written and synced: they take the place of the segments at `bases`."""

    bases: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """All groups are written. The log is clean up to `end_offset`. The counts are for the node's log."""

    end_offset: int
    bytes_read: int
    bytes_written: int
    records_kept: int
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncleanable:
    """The log holds something that cannot be cleaned. Another attempt does not help."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningFailed:
    """The disk failed. The log is unchanged, and a later attempt may succeed."""

    why: str


Answer = GroupCleaned | Cleaned | Uncleanable | CleaningFailed


def first_dirty_offset(facts: CompactionFacts, checkpoint: int | None) -> int:
    """Returns where the last cleaning ended, or the log's start if that is not known or no longer in the log."""
    if checkpoint is None or not facts.log_start_offset <= checkpoint <= facts.log_end_offset:
        return facts.log_start_offset
    return checkpoint


def dirtiness(facts: CompactionFacts, config: LogConfig, *, checkpoint: int | None, now_ms: int) -> Dirtiness:
    """Returns how much of a log is dirty and may be cleaned now."""
    first_dirty = first_dirty_offset(facts, checkpoint)
    active = facts.segments[-1][0]
    sealed = facts.segments[:-1]
    bounds = [facts.last_stable_offset, active]
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        dirty = sealed[_floor(sealed, first_dirty) :]
        bounds += [base for base, _, latest in dirty if latest > youngest][:1]
    bound = max(first_dirty, min(bounds))
    uncleanable = active if bound >= active else sealed[_floor(sealed, bound)][0]
    cleanable_from = _floor(facts.segments, min(first_dirty, uncleanable))
    cleanable = sum(size for base, size, _ in facts.segments[cleanable_from:] if base < uncleanable)
    firsts = facts.first_batches[_floor(sealed, first_dirty) :]
    oldest = min((stamp for _, stamp in firsts if stamp > 0), default=None)
    return Dirtiness(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=uncleanable,
        clean_bytes=sum(size for base, size, _ in facts.segments if base < first_dirty),
        cleanable_bytes=cleanable,
        overdue=oldest is not None and now_ms - config.max_compaction_lag_ms > oldest,
    )


def _floor(segments: Sequence[tuple[int, int, int]], offset: int) -> int:
    """Returns the number of the segment that holds an offset; 0 if the offset is before the first."""
    return max(sum(1 for base, _, _ in segments if base <= offset) - 1, 0)


def groups_of(
    sources: Sequence[SegmentSource],
    *,
    segment_bytes: int,
    segment_index_bytes: int,
    first_uncleanable_offset: int,
) -> list[tuple[SegmentSource, ...]]:
    """Groups neighbours that fit into one segment, its indexes and its range of offsets."""
    groups: list[list[SegmentSource]] = []
    size = offset_index = time_index = 0
    for number, source in enumerate(sources):
        later = sources[number + 1].base_offset if number + 1 < len(sources) else first_uncleanable_offset
        fits = (
            bool(groups)
            and size + source.size <= segment_bytes
            and offset_index + source.offset_index_size <= segment_index_bytes
            and time_index + source.time_index_size <= segment_index_bytes
            and (source.size == 0 or later - 1 - groups[-1][0].base_offset <= MAX_INT)
        )
        if not fits:
            groups.append([])
            size = offset_index = time_index = 0
        groups[-1].append(source)
        size += source.size
        offset_index += source.offset_index_size
        time_index += source.time_index_size
    return [tuple(group) for group in groups]


def send_message(stream: IO[bytes], message: CleaningJob | Answer) -> None:
    """Write a message, pickled, after its length."""
    data = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive_message(stream: IO[bytes]) -> Any:
    """Returns the next message. Raises EOFError if the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    size = _LENGTH.unpack(head)[0]
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)
