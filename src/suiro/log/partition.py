"""One partition on disk: appends, reads and look-ups, in Kafka's own file layout.

Always true:
- one owner calls it, from one thread; nothing here waits for anything but the disk;
- bytes at offsets below `log_end_offset` never change; there is no replication, so the high watermark
  is the log's end, and `last_stable_offset` is the first offset of the oldest open transaction;
- an append is in the log as a whole or not at all, and what it returned survives the death of the
  process (the bytes are the operating system's). To survive the death of the machine, `flush`;
- a read hands out file regions, never bytes; see `files` for why they stay valid;
- offsets are contiguous, but below `gaps_below`, where a cleaning may have left gaps. Any other gap is damage, and
  a read that meets it raises DamagedLogError.

The rules of what may be appended are in `admission` and `producer_state`, opening after a crash in
`recovery`, time look-ups in `lookup`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

from suiro.clock import Clock
from suiro.log import lookup, producer_snapshot
from suiro.log.admission import Origin, admit, check_batch, check_together, placed, stamped_with_time
from suiro.log.checkpoints import keep_topic_id
from suiro.log.config import LogConfig
from suiro.log.errors import (
    DamagedLogError,
    InRemoteTierError,
    LogError,
    OffsetOutOfRangeError,
    StorageError,
    TornSegmentError,
)
from suiro.log.files import open_directory
from suiro.log.leader_epochs import LeaderEpochs
from suiro.log.lookup import TimeLookup
from suiro.log.producer_state import ProducerEntry, ProducerStates
from suiro.log.recovery import Opened, open_segments
from suiro.log.results import Appended, FlushJob, ReadResult, Syncs
from suiro.log.segment import Segment
from suiro.log.segments import Region, SegmentFacts, Segments, missing
from suiro.log.swap import DeletedFiles
from suiro.log.transaction_index import AbortedTransaction
from suiro.log.upkeep import LogCleaning, LogRetention
from suiro.protocol.record_batch import NO_TIMESTAMP, BatchHeader
from suiro.protocol.records import control_batch

logger = logging.getLogger(__name__)

_REPORTED_MAX = 100


class PartitionLog:
    """One partition. After `close` or `delete` nothing may be appended."""

    def __init__(
        self,
        directory: Path,
        *,
        topic: str,
        partition: int,
        topic_id: UUID,
        config: LogConfig,
        clock: Clock,
        clean_shutdown: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        deleted_files: DeletedFiles | None = None,
        gaps_below: int | None = None,
        note_gaps: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the partition, or open and, unless it was closed cleanly, recover it.

        `gaps_below`: where cleaning may have left gaps in the offsets; None where nobody noted it, so that any gap
        that there is now counts as cleaning's. `note_gaps` is called when that has grown, to put it on the disk.
        """
        keep_topic_id(directory, topic_id, topic)
        self.leader_epochs = LeaderEpochs(directory)
        opened = open_segments(
            directory,
            config,
            clean=clean_shutdown and not self.leader_epochs.damaged,
            recovery_point=0 if self.leader_epochs.damaged else recovery_point,
            log_start_offset=log_start_offset,
            now_ms=clock.wall_ms(),
        )
        _log_losses(directory, opened, recovery_point=recovery_point, gaps_below=gaps_below)
        self.log_end_offset = end = opened.log_end_offset
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        first = opened.segments[0].base_offset
        # What lies before the first local segment of a tiered log is in the remote tier.
        start = log_start_offset if config.remote_storage_enable else max(log_start_offset, first)
        self.log_start_offset = min(start, end)
        self.tiered_end_offset = 0
        self._deleted_files = DeletedFiles() if deleted_files is None else deleted_files
        self.recovery_point = min(recovery_point, end)
        """Every offset below it is on the disk."""
        self._unsynced_records = 0
        self._syncs = Syncs()
        self._flushed_ms = clock.monotonic_ms()
        self.gaps_below = end if gaps_below is None else gaps_below
        self.found_gaps = opened.gaps
        self.retention = LogRetention(self, clock=clock, deleted_files=self._deleted_files)
        self.cleaning = LogCleaning(self, clock=clock, note_gaps=note_gaps)
        self._reported: set[str] = set()
        self.leader_epochs.correct(opened.leader_epochs, log_end_offset=end)
        self.leader_epoch = max(self.leader_epochs.latest, 0)
        self._clock = clock
        self.cleaned_offset: int | None = None
        self.offline: str | None = None
        self._is_refused = False
        self._segments = Segments(opened.segments)
        self._producers = opened.producers
        self._closed_at = end if opened.as_closed else None
        self.is_open = True

    # Where the log stands

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset

    @property
    def local_log_start_offset(self) -> int:
        """The first offset on this disk. The earlier ones of a tiered log are in the remote tier."""
        return max(self.log_start_offset, self._segments.first_base)

    @property
    def last_stable_offset(self) -> int:
        first = self._producers.first_unstable_offset
        return self.log_end_offset if first is None else max(first, self.log_start_offset)

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self._segments)

    @property
    def kept_segments(self) -> Segments:
        """The segments, for retention and cleaning, which delete and replace them."""
        return self._segments

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    def segment_facts(self, *, from_offset: int) -> list[SegmentFacts]:
        """Returns the facts for retention of the local segments that end behind an offset."""
        facts = self._segments.facts(self.log_end_offset)
        return [segment for segment in facts if segment.end_offset > from_offset]

    def producer_states(self) -> tuple[ProducerEntry, ...]:
        return tuple(self._producers.entries.values())

    def producer(self, producer_id: int) -> ProducerEntry | None:
        """Returns the state of one producer, which the caller must not change."""
        return self._producers.entries.get(producer_id)

    def begin_epoch(self, leader_epoch: int) -> None:
        """Append in this epoch from now on. It never goes down, because clients keep the latest one that they saw."""
        self.leader_epoch = max(leader_epoch, self.leader_epoch)

    def lead_anew(self, leader_epoch: int) -> None:
        """Begin another epoch after an unclean stop, which may have lost records that were read. By the epoch, their
        readers find where this log differs from what they read (KIP-320)."""
        self.begin_epoch(leader_epoch)
        # On a full disk the next append writes it, or nothing can be appended.
        with contextlib.suppress(StorageError):
            self.leader_epochs.add((self.leader_epoch, self.log_end_offset))

    def expire_producers(self, before_ms: int) -> None:
        """Forget the producers that have written nothing since, unless their transaction is open."""
        self._producers.expire(before_ms)

    def update_config(self, config: LogConfig) -> None:
        """Use new topic settings from the next append, roll, retention and compaction on.

        The active segment keeps the index sizes that it was made with, as in Kafka.
        """
        self.config = config

    # Append

    def append(
        self,
        data: bytes | bytearray | memoryview,
        *,
        origin: Origin = "client",
    ) -> Appended:
        """Write one batch (or several, of a coordinator) at the log's end. Raises a LogError."""
        self.check_open()
        now_ms = self._clock.wall_ms()
        batches = admit(data, self.config, origin=origin, now_ms=now_ms)
        first = batches[0][1]
        if len(batches) > 1:
            headers = [header for _, header in batches]
            check_together(self._producers, headers, offset=self.log_end_offset, sequenced=origin == "client")
        elif first.producer_id >= 0:
            duplicate = check_batch(self._producers, self._segments, first, sequenced=origin == "client")
            if duplicate is not None:
                first_offset, last_offset = duplicate.first_offset, duplicate.last_offset
                return self._appended(first_offset, last_offset, duplicate.timestamp, duplicate=True)
        base_offset = self.log_end_offset
        view = memoryview(data)
        for position, header in batches:
            self._write(view[position : position + header.size], header, now_ms)
        return self._appended(base_offset, self.log_end_offset - 1, now_ms)

    def _appended(self, first: int, last: int, timestamp: int, *, duplicate: bool = False) -> Appended:
        return Appended(
            base_offset=first,
            last_offset=last,
            log_append_time=timestamp if self.config.message_timestamp_type == "LogAppendTime" else -1,
            log_start_offset=self.log_start_offset,
            duplicate=duplicate,
        )

    def append_control(
        self,
        commit: bool,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        timestamp: int | None = None,
        *,
        transaction_version: int = 0,
    ) -> int:
        """Write a commit or abort marker, which ends the producer's transaction here. Returns the marker's offset."""
        self.check_open()
        now_ms = self._clock.wall_ms()
        self._producers.check_marker(
            producer_id, producer_epoch, coordinator_epoch, transaction_version=transaction_version
        )
        batch = control_batch(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms if timestamp is None else timestamp,
        )
        ((_, header),) = admit(batch, self.config, origin="coordinator", now_ms=now_ms)
        offset = self.log_end_offset
        segment = self._write(memoryview(batch), header, now_ms)
        first_offset = self._producers.add_marker(producer_id, producer_epoch, coordinator_epoch, timestamp=now_ms)
        if first_offset is not None and not commit:
            entry = AbortedTransaction(producer_id, first_offset, offset, self.last_stable_offset)
            segment.transaction_index.add(entry)
        return offset

    def _write(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Segment:
        try:
            segment = self._put(batch, header, now_ms)
        except StorageError as error:
            # Clients repeat the request: one line stands for all of them.
            if self.offline is None and not self._is_refused:
                self._is_refused = True
                logger.error("%s takes no records until its disk does: %s", self.directory, error)
            raise
        if self._is_refused:
            self._is_refused = False
            logger.warning("%s takes records again", self.directory)
        return segment

    def _put(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Segment:
        base_offset, leader_epoch = self.log_end_offset, self.leader_epoch
        last_offset = base_offset + header.last_offset_delta
        max_timestamp, size = header.max_timestamp, header.size
        stamped = self.config.message_timestamp_type == "LogAppendTime" and not header.is_control
        if stamped:
            max_timestamp = now_ms
            buffers = stamped_with_time(batch, header, base_offset, leader_epoch, now_ms)
        else:
            buffers = placed(batch, header, base_offset, leader_epoch)
        segment = self._segments.active
        try:
            due = segment.is_due(
                self.config, size=size, last_offset=last_offset, max_timestamp=max_timestamp, now_ms=now_ms
            )
        except OSError as error:
            raise StorageError(f"cannot open {segment.path}: {error.strerror}") from error
        if due:
            segment = self.roll()
        if self.leader_epochs.lacks(leader_epoch):
            self.leader_epochs.add((self.leader_epoch, self.log_end_offset))
        position = segment.size
        try:
            segment.append(buffers, size, last_offset=last_offset, max_timestamp=max_timestamp)
        except TornSegmentError as error:
            self.take_offline(str(error))
            raise
        self.log_end_offset = last_offset + 1
        if header.producer_id >= 0 and not header.is_control:
            known = len(self._producers.open_transactions)
            # A producer expires by the time of its last write. The event time of its records may be years ago, and
            # if a live producer were forgotten, its retries would be written twice.
            self._producers.add_batch(header, first_offset=base_offset, timestamp=now_ms)
            if len(self._producers.open_transactions) > known:
                segment.remember(base_offset, position)
        self._unsynced_records += header.count
        if self._unsynced_records >= self.config.flush_messages:
            self.flush()
        return segment

    def roll(self) -> Segment:
        """Seal the active segment and begin a new one at the log's end."""
        active = self._segments.active
        if active.size == 0:
            return active
        base = self.log_end_offset
        new = Segment(self.directory, base, self.config, created_ms=self._clock.wall_ms())
        try:
            new.create()
        except StorageError:
            # Appends go on in the active segment. At the next start, the empty file would stand for their offsets.
            new.unlink()
            raise
        try:
            producer_snapshot.write(self.directory, base, self._producers.entries.values())
        except OSError:
            pass  # Recovery then starts from an older one.
        try:
            self._segments.add(new)
        except OSError as error:
            new.unlink()  # as above
            raise StorageError(f"cannot seal {active.path}: {error.strerror}") from error
        return new

    # Read

    def read(self, offset: int, *, max_bytes: int, read_committed: bool, min_one_batch: bool = True) -> ReadResult:
        """Returns the batches from the one that holds `offset` on, up to the high watermark or last stable offset.

        The first batch is whole even if it is larger than `max_bytes`, unless `min_one_batch` is off. Raises
        OffsetOutOfRangeError, InRemoteTierError for an offset that is not on this disk, DamagedLogError, and
        StorageError if the disk fails.
        """
        if self.offline is not None:
            self.check_open()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic}-{self.partition}: the log has "
                f"{self.log_start_offset} to {self.log_end_offset}"
            )
        if offset < self._segments.first_base:
            raise self._in_tier(offset)
        bound = self.last_stable_offset if read_committed else self.log_end_offset
        regions: list[Region] = []
        aborted: list[tuple[int, int]] = []
        try:
            found = None
            if offset < bound:
                found = self._segments.region(
                    offset,
                    bound,
                    log_end_offset=self.log_end_offset,
                    max_bytes=max_bytes,
                    gaps_below=self.gaps_below,
                )
            if found is not None and (found[0][2] <= max_bytes or min_one_batch):
                regions.append(found[0])
                if read_committed:
                    aborted = self._segments.aborted(offset, found[1])
        except (DamagedLogError, StorageError) as error:
            self._report(error)
            if offset < self.tiered_end_offset:
                raise self._in_tier(offset) from error  # The copy there was verified when it was made.
            raise
        return ReadResult(
            regions=regions,
            size=sum(region[2] for region in regions),
            high_watermark=self.log_end_offset,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
            aborted=aborted,
        )

    def _in_tier(self, offset: int) -> InRemoteTierError:
        return InRemoteTierError(
            f"offset {offset} of {self.topic}-{self.partition} lies in the remote tier: this disk has "
            f"{self._segments.first_base} to {self.log_end_offset}"
        )

    def _report(self, error: LogError) -> None:
        """Log damage once, not at each read of it."""
        text = str(error)
        if text not in self._reported and len(self._reported) < _REPORTED_MAX:
            self._reported.add(text)
            logger.error("%s", text)

    def aborted_transactions(self, offset: int, upper: int) -> list[tuple[int, int]]:
        """Returns (producer id, first offset) of the aborted transactions that overlap [offset, upper), by the markers
        on this disk."""
        return self._segments.aborted(offset, upper)

    def lookups_by_time(self, timestamp: int) -> Iterator[TimeLookup]:
        """Yields look-ups for the first record at least this late: the first one that finds a record has it.

        Each may run in another thread. The iterator itself must be used in the thread of the log.
        """
        return lookup.lookups_by_time(self._segments, timestamp, log_start_offset=self.log_start_offset)

    def lookups_of_max_timestamp(self) -> Iterator[TimeLookup]:
        """The same for the first record that has the largest timestamp."""
        largest = lookup.largest_timestamp(self._segments)
        return iter(()) if largest == NO_TIMESTAMP else self.lookups_by_time(largest)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        """Returns (largest epoch at most this one, where it ended), or None for one that has not begun."""
        return self.leader_epochs.end_offset(
            leader_epoch, current=self.leader_epoch, log_end_offset=self.log_end_offset
        )

    def epoch_of(self, offset: int) -> int:
        """Returns the leader epoch that an offset was written in, or will be."""
        return self.leader_epochs.epoch_of(offset, current=self.leader_epoch)

    # The remote tier

    def found_in_tier(
        self, start_offset: int | None, end_offset: int, leader_epochs: Sequence[tuple[int, int]] = ()
    ) -> None:
        """After a start: the remote tier has copies from `start_offset` (None: no copies) to before `end_offset`.

        Where a crash lost records that the tier has, the log continues at the tier's end, in its latest leader epoch.
        """
        self.tiered_end_offset = end_offset
        if self.config.compacted:
            self.gaps_below = max(self.gaps_below, end_offset)
        self.leader_epochs.correct(leader_epochs, log_end_offset=max(end_offset, self.log_end_offset))
        self.begin_epoch(self.leader_epochs.latest)
        if end_offset > self.log_end_offset:
            new = Segment(self.directory, end_offset, self.config, created_ms=self._clock.wall_ms())
            new.create()
            self._segments.add(new)
            self.log_end_offset = end_offset
            self.flushed(end_offset)
            # The log does not know what the producers wrote in between. A transaction that was open at the end of
            # this disk had ended before the tier's end was copied. If it stayed open, it would hold back the last
            # stable offset forever.
            self._producers = ProducerStates()
            self.retention.delete_oldest(len(self._segments) - 1)
        first = self._segments.first_base if start_offset is None else start_offset
        if first > self.log_start_offset and (start_offset is None or not self.config.compacted):
            self.retention.start_at(min(first, self._segments.first_base))

    # Disk

    def flush(self) -> None:
        """Sync everything to disk; then `recovery_point` is the log's end. Raises StorageError, and then the log is
        offline: after a failed sync the system may have dropped the pages and report success the next time."""
        synced = -1
        while synced < self.log_end_offset:
            try:
                job = self.flush_job()
                job.run()
            except OSError as error:
                failure = StorageError(f"cannot sync {self.directory}: {error.strerror}")
                self.take_offline(str(failure))
                raise failure from error
            synced = job.end_offset
            self.flushed(synced)

    def flush_job(self) -> FlushJob:
        """Returns the work of a flush, which may run in another thread while appends go on.

        With many segments, it covers only the first ones, and its `end_offset` is less than the log's end.
        """
        self._unsynced_records = 0
        self._flushed_ms = self._clock.monotonic_ms()
        handles, left = self._segments.handles_to_sync(self.recovery_point)
        handles.append(open_directory(self.directory))
        end_offset = self.log_end_offset if left is None else left
        return FlushJob(handles=tuple(handles), end_offset=end_offset, syncs=self._syncs)

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether `flush.ms` has passed over records that are not synced yet, at this monotonic time."""
        return self.recovery_point < self.log_end_offset and now_ms - self._flushed_ms >= self.config.flush_ms

    def flushed(self, end_offset: int) -> None:
        """Everything before this offset is on the disk, or is no longer in the log."""
        self.recovery_point = max(self.recovery_point, end_offset)

    def close(self) -> None:
        """Sync, and leave a snapshot at the log's end, so that the next open scans nothing."""
        if not self.is_open:
            return
        self.is_open = False
        if self.offline is not None:
            return
        end = self.log_end_offset
        if end == self._closed_at:
            self._segments.release()
            return  # Nothing was appended since it was closed the last time.
        # The next open does not look for epochs in the batches.
        self.leader_epochs.add(*([(self.leader_epoch, end)] if self.leader_epoch else []))
        self.flush()
        producer_snapshot.write(self.directory, end, self._producers.entries.values())
        producer_snapshot.remove(self.directory, keep=[*self._segments.bases, end])
        self._segments.active.seal()
        self._segments.release()

    def abandon(self) -> None:
        """Release the files without writing anything, as if the process had been killed."""
        self.is_open = False
        self._segments = Segments([])

    def delete(self) -> None:
        """Remove the partition: its directory is renamed now and removed after `file.delete.delay.ms`."""
        self.is_open = False
        due_ms = self._clock.monotonic_ms() + self.config.file_delete_delay_ms
        self._deleted_files.delete_folder(self.directory, due_ms=due_ms)
        self._segments = Segments([])

    def take_offline(self, why: str) -> None:
        """Refuse reads and appends until the next start, after a failure that leaves it unknown what is on the disk.

        Otherwise the log might give out the offsets of records that the disk has, or acknowledge records that it lost.
        """
        if self.offline is None:
            self.offline = why
            logger.error("%s is offline until the next start: %s", self.directory, why)

    def check_open(self) -> None:
        if not self.is_open:
            raise StorageError(f"{self.topic}-{self.partition} is closed")
        if self.offline is not None:
            raise StorageError(
                f"{self.topic}-{self.partition} is offline since its disk failed ({self.offline}); fix the disk "
                "and restart the node"
            )


def _log_losses(directory: Path, opened: Opened, *, recovery_point: int, gaps_below: int | None) -> None:
    if opened.log_end_offset < recovery_point:
        logger.error(
            "%s: offsets %d to %d are lost: they were synced to disk, and are not there any more",
            directory,
            opened.log_end_offset,
            recovery_point - 1,
        )
    for first, end in opened.gaps:
        if gaps_below is not None and end > gaps_below:
            logger.error("%s", missing(directory, first, end))
