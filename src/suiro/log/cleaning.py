"""Cleans one log: reads the keys of the dirty part into a map, and writes the remaining records of each segment group.

Always true: only files ending in `.cleaned` are written, and whoever asked puts them in place (`LogCleaning.
replace_segments`), so that a death at any moment leaves the log as it was. Each batch keeps its offsets, epochs
and sequences; a batch that changes nothing is copied as it is; one that is written anew had the right CRC and
keeps its codec.

`compiled_cleaning` processes the records, or `plain_cleaning` if numba is not installed. Both use a whole core, so a
node runs them in a process of its own (`cleaning_process`). The rules are in `compaction`, the files in
`cleaned_segment`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from suiro.extras import is_installed
from suiro.log.cleaned_segment import Counts, Throttle
from suiro.log.compaction import Cleaned, CleaningJob, GroupCleaned, SegmentSource, groups_of
from suiro.log.transaction_index import AbortedTransaction, TransactionIndex


class Cleaning(Protocol):
    """Processes the records of one job."""

    @property
    def keys(self) -> int:
        """The number of keys in the cleaned part."""

    @property
    def latest_offset(self) -> int:
        """The last offset whose key is known, or -1."""

    def collect_keys(self) -> None:
        """Reads as much of the dirty part as the map takes (Kafka's buildOffsetMap)."""

    def clean_group(self, group: Sequence[SegmentSource]) -> None:
        """Writes one new segment for all of these."""


def clean(
    job: CleaningJob, *, throttle: Throttle | None = None, compiled: bool | None = None
) -> Iterator[GroupCleaned | Cleaned]:
    """Clean one log. Each `GroupCleaned` may be put in place before the next is asked for; `Cleaned` comes last.

    Raises CorruptRecordError if the log cannot be read, and OSError.
    """
    counts = Counts()
    cleaning = _cleaning(
        job,
        counts,
        throttle or Throttle(job.settings.max_bytes_per_second),
        is_installed("numpy", "numba") if compiled is None else compiled,
    )
    cleaning.collect_keys()
    end_offset = cleaning.latest_offset + 1
    groups = groups_of(
        [source for source in job.sources if source.base_offset < end_offset],
        segment_bytes=job.segment_bytes,
        segment_index_bytes=job.segment_index_bytes,
        first_uncleanable_offset=job.first_uncleanable_offset,
    )
    for group in groups:
        cleaning.clean_group(group)
        yield GroupCleaned(bases=tuple(source.base_offset for source in group))
    yield Cleaned(
        end_offset=end_offset,
        bytes_read=counts.bytes_read,
        bytes_written=counts.bytes_written,
        records_kept=counts.records_kept,
        keys=cleaning.keys,
    )


def _cleaning(job: CleaningJob, counts: Counts, throttle: Throttle, compiled: bool) -> Cleaning:
    aborted = _aborted(job)
    if compiled:
        from suiro.log.compiled_cleaning import CompiledCleaning

        return CompiledCleaning(job, aborted, counts, throttle)
    from suiro.log.plain_cleaning import PlainCleaning

    return PlainCleaning(job, aborted, counts, throttle)


def _aborted(job: CleaningJob) -> list[AbortedTransaction]:
    return sorted({entry for path in job.transaction_indexes for entry in TransactionIndex(path).entries})
