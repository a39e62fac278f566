"""Compacting what is only in the remote tier: a compacted topic's remote segments are cleaned again there.

Only cleaned segments are copied. But a key that comes again later shadows its older records in the tier, and a
deleted key must not come back: the log cleaner may drop a tombstone only when no older record of the key is left
anywhere. So, after the cleaner has gone on and its segments are copied, the older remote segments are fetched, run
through the same cleaner with the keys of the newer ones, and stored anew; each new copy takes the place of the one
with its offsets (see `RemoteLog`). Until that is done for all of them, the log is not cleaned further here
(`RemoteTier.holds_cleaning`).

On this disk are, for as long as it takes, the segments with the newer keys and a window of the older ones.
Everything here waits for the store or for the cleaner's process, and is called in a thread.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from suiro.broker.storage.cleaner import CleaningProcess
from suiro.foundation.parts import in_parts
from suiro.log import Cleaned, CleanerSettings, CleaningJob, PartitionLog
from suiro.log.compaction import CLEANED_SUFFIX, SegmentSource
from suiro.log.files import open_handle
from suiro.log.tier import (
    Proceed,
    RemoteSegment,
    RemoteStore,
    RemoteStoreError,
    Source,
    checked_object,
    download,
)

SCRATCH = "remote-cleaning"
_WINDOW_BYTES = 1 << 30
RunCleaning = Callable[[CleaningJob], int]
"""Writes the `.cleaned` files of a job; the offset up to which its keys counted."""
_EACH_ALONE = 1  # segment.bytes of a job whose segments are not to be merged


class Recleaning:
    """One round for one partition. `close` removes what it has on the disk. Made in the thread of the log; raises
    OSError."""

    def __init__(
        self,
        store: RemoteStore,
        log: PartitionLog,
        *,
        directory: Path,
        settings: CleanerSettings,
        now_ms: int,
        proceed: Proceed,
        run: RunCleaning,
    ) -> None:
        self._store = store
        self._directory = directory
        self._proceed = proceed
        self._run = run
        config = log.config
        self._job = CleaningJob(
            directory=directory,
            sources=(),
            first_dirty_offset=0,
            first_uncleanable_offset=0,
            transaction_indexes=(),
            last_of_producers=log.cleaning.last_of_producers(),
            now_ms=now_ms,
            delete_retention_ms=config.tombstones_ms,
            segment_bytes=_EACH_ALONE,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            settings=settings,
        )
        self._newer: Sequence[RemoteSegment] = ()
        # The marker of a transaction with records in the tier may be here. No cleaning replaces the files meanwhile.
        for segment in log.segments:
            segment.transaction_index.flush()
        self._local_indexes = [segment.transaction_index.path for segment in log.segments]

    def fetch_newer(self, segments: Sequence[RemoteSegment]) -> None:
        """The segments whose keys shadow older ones."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self._newer = segments
        self._fetch(segments)

    def clean(self, older: Sequence[RemoteSegment], *, first_dirty_offset: int, end_offset: int) -> int:
        """Clean a window of older segments. The offset up to which the newer keys counted.

        Raises RemoteStoreError.
        """
        newer = [segment for segment in self._newer if segment not in older]
        self._fetch([segment for segment in older if segment not in self._newer])
        sources = sorted([*older, *newer], key=lambda segment: segment.start_offset)
        job = replace(
            self._job,
            sources=tuple(
                SegmentSource(
                    base_offset=segment.start_offset,
                    size=segment.size,
                    offset_index_size=0,
                    time_index_size=0,
                )
                for segment in sources
            ),
            transaction_indexes=(
                *(self._path(segment, "txnindex") for segment in sources),
                *self._local_indexes,
            ),
            first_dirty_offset=first_dirty_offset,
            first_uncleanable_offset=end_offset,
        )
        return self._run(job)

    def cleaned_sources(self, segment: RemoteSegment) -> list[Source] | None:
        """The files to store in the place of a cleaned segment; None if cleaning removed nothing."""
        sources = []
        for kind in ("log", "index", "timeindex", "txnindex"):
            path = self._path(segment, kind + CLEANED_SUFFIX)
            if path.exists():
                sources.append(Source(kind=kind, handle=open_handle(path), size=path.stat().st_size))
        if not sources or sources[0].checksum() == segment.stored("log"):
            return None
        for kind in ("snapshot", "leader-epoch-checkpoint"):
            if segment.stored(kind) is not None:
                content = checked_object(self._store, segment, kind, proceed=self._proceed)
                sources.append(Source(kind=kind, content=content, size=len(content)))
        return sources

    def drop(self, segments: Sequence[RemoteSegment]) -> None:
        """Remove the files of a window that is done. Those with newer keys stay for the next one."""
        for segment in segments:
            for path in self._directory.glob(f"{segment.start_offset:020d}.*"):
                if segment not in self._newer or path.suffix == CLEANED_SUFFIX:
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _fetch(self, segments: Sequence[RemoteSegment]) -> None:
        for segment in segments:
            for kind in ("log", "txnindex"):
                if segment.stored(kind) is not None:
                    download(self._store, segment, kind, self._path(segment, kind), proceed=self._proceed)

    def _path(self, segment: RemoteSegment, ending: str) -> Path:
        return self._directory / f"{segment.start_offset:020d}.{ending}"


def windows(segments: Sequence[RemoteSegment]) -> Iterator[list[RemoteSegment]]:
    """Neighbours that are cleaned together: the keys are read once for each window."""
    return in_parts(segments, lambda segment: segment.size, max_size=_WINDOW_BYTES)


def clean_in_a_process(job: CleaningJob) -> int:
    """Clean, in a process of its own as all cleaning. Raises RemoteStoreError."""
    process = CleaningProcess()
    try:
        process.send(job)
        while True:
            message = process.receive()
            if isinstance(message, Cleaned):
                return message.end_offset
            if hasattr(message, "why"):
                raise RemoteStoreError(f"cleaning {job.directory} failed: {message.why}")
    except EOFError:
        raise RemoteStoreError(f"cleaning {job.directory} failed: its process ended") from None
    finally:
        process.end()
