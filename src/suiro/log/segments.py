"""The segments of one partition in order, and the byte ranges of a read.

Always true: there is at least one segment, base offsets rise, and the last one takes the appends. Of
the others only those read last keep their files open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from suiro.log.errors import DamagedLogError, StorageError
from suiro.log.files import FileHandle
from suiro.log.segment import Segment

SEALED_SEGMENTS_OPEN = 4
SEGMENTS_SYNCED_TOGETHER = 16

Region = tuple[FileHandle, int, int]
"""(file, position, length). Keep the handle itself until the bytes are sent; `int()` of it holds nothing."""


class SegmentFacts(NamedTuple):
    """`end_offset` is the next segment's base, or the log's end for the last one."""

    end_offset: int
    size: int
    latest_ms: int


def missing(directory: Path, first: int, end: int) -> DamagedLogError:
    """The error for offsets that no batch holds, although no cleaning has removed them."""
    return DamagedLogError(
        f"{directory} is damaged: offsets {first} to {end - 1} are missing; bring its segments back from a copy while "
        f"the node is stopped, or have readers go on at offset {end}"
    )


class Segments:
    """Finds segments and file regions by offset. The caller passes the log's end."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._recently_read: dict[int, Segment] = {}

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def first_base(self) -> int:
        return self._bases[0]

    @property
    def bases(self) -> tuple[int, ...]:
        return tuple(self._bases)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds an offset, or would, and all later ones."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def holding(self, offset: int) -> tuple[Segment, int | None]:
        """Returns the segment that holds an offset, or would, and where the next one begins; None: it is the last."""
        at = max(bisect_right(self._bases, offset) - 1, 0)
        return self._segments[at], self._bases[at + 1] if at + 1 < len(self._bases) else None

    def add(self, segment: Segment) -> None:
        """Seal the active segment and go on in a new one."""
        self.active.seal()
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def drop_oldest(self, count: int, delete_files: Callable[[Segment], None]) -> None:
        """Forget the oldest segments, never the last one; `delete_files` removes their files' names.

        Where that fails, those before and the one that it failed with are forgotten: a part of its files is gone.
        """
        gone = 0
        try:
            for segment in self._segments[:count]:
                gone += 1
                self._recently_read.pop(segment.base_offset, None)
                delete_files(segment)
        finally:
            del self._segments[:gone], self._bases[:gone]

    def at(self, bases: Sequence[int]) -> list[Segment]:
        """Neighbours, by their base offsets."""
        first = self._bases.index(bases[0])
        assert tuple(self._bases[first : first + len(bases)]) == tuple(bases)
        return self._segments[first : first + len(bases)]

    def replace(self, bases: Sequence[int], new: Segment) -> None:
        """Put one segment in the place of neighbours; it begins where they did."""
        first = self._bases.index(bases[0])
        for base in bases:
            self._recently_read.pop(base, None)
        self._segments[first : first + len(bases)] = [new]
        self._bases[first : first + len(bases)] = [new.base_offset]

    def facts(self, log_end_offset: int) -> list[SegmentFacts]:
        ends = [*self._bases[1:], log_end_offset]
        return [
            SegmentFacts(end, segment.size, segment.latest_ms)
            for end, segment in zip(ends, self._segments, strict=True)
        ]

    def region(
        self, offset: int, bound: int, *, log_end_offset: int, max_bytes: int, gaps_below: int
    ) -> tuple[Region, int] | None:
        """Returns whole batches from the one that holds `offset` on, all before `bound`, and the offset behind them.

        They are at most `max_bytes`, but at least one batch, and in one segment. Returns None if there are none. Raises
        DamagedLogError if offsets are missing, unless the gap ends at or before `gaps_below`, and StorageError.
        """
        try:
            for segment in self.from_offset(offset):
                found = segment.batch_at(offset)
                if found is None:
                    continue  # The offset lies in a gap at this segment's end.
                start, base = found
                if base > max(offset, gaps_below):
                    raise missing(segment.path.parent, offset, base)
                end, upper = segment.size, bound
                sealed = segment is not self.active
                if sealed:
                    upper = min(bound, self._bases[bisect_right(self._bases, segment.base_offset)])
                    self.touch(segment)
                if upper == bound < log_end_offset:
                    bound_position = segment.position_of(bound)
                    end = segment.size if bound_position is None else bound_position
                if start >= end:
                    return None
                stop, stop_offset = segment.whole_batches(start, end, max_bytes=max_bytes)
                upper = upper if stop_offset is None else stop_offset
                if stop < segment.size or not sealed:
                    segment.remember(upper, stop)  # A consumer's next fetch begins there.
                return (segment.handle, start, stop - start), upper
        except OSError as error:
            raise self._unreadable(error) from error
        if log_end_offset > gaps_below:
            raise missing(self.active.path.parent, offset, log_end_offset)
        return None

    def aborted(self, offset: int, upper: int) -> list[tuple[int, int]]:
        """Aborted transactions that overlap [offset, upper), as (producer id, first offset). Raises StorageError."""
        found: list[tuple[int, int]] = []
        try:
            for segment in self.from_offset(offset):
                for entry in segment.transaction_index.entries:
                    if entry.last_offset >= offset and entry.first_offset < upper:
                        found.append((entry.producer_id, entry.first_offset))
                    if entry.last_stable_offset >= upper:
                        return found
        except OSError as error:
            raise self._unreadable(error) from error
        return found

    def _unreadable(self, error: OSError) -> StorageError:
        """The error for a bad sector or a lack of descriptors. It is of this log, not of others in the same request."""
        return StorageError(f"cannot read {self.active.path.parent}: {error.strerror or error}")

    def handles_to_sync(self, recovery_point: int) -> tuple[list[FileHandle], int | None]:
        """Returns the files with everything that was appended since the recovery point, and None.

        An imported log may have more files than the process can open. Then only the first ones are returned, with the
        offset at which the others begin.
        """
        handles: list[FileHandle] = []
        waiting = self.from_offset(recovery_point)
        for segment in waiting[:SEGMENTS_SYNCED_TOGETHER]:
            handles += segment.handles_to_sync()
            if segment is not self.active:
                self.touch(segment)
        left = waiting[SEGMENTS_SYNCED_TOGETHER:]
        return handles, left[0].base_offset if left else None

    def release(self) -> None:
        """Let go of all open files."""
        for segment in self._segments:
            segment.release()
        self._recently_read.clear()

    def touch(self, segment: Segment) -> None:
        """Keep the sealed segments that were used last open, and let go of the others."""
        recent = self._recently_read
        recent.pop(segment.base_offset, None)
        recent[segment.base_offset] = segment
        if len(recent) > SEALED_SEGMENTS_OPEN:
            recent.pop(next(iter(recent))).release()
