"""One partition on disk: append, read, look up, retire, in Kafka's own file layout.

Always true:
- one owner calls it, from one thread; nothing here waits for anything but the disk;
- bytes at offsets below `log_end_offset` never change; there is no replication, so the high watermark
  is the log's end, and `last_stable_offset` is the first offset of the oldest open transaction;
- an append is in the log as a whole or not at all, and what it returned survives the death of the
  process (the bytes are the operating system's). To survive the death of the machine, `flush`;
- a read hands out file regions, never bytes; see `files` for why they stay valid.

The rules of what may be appended are in `admission` and `producer_state`, opening after a crash in
`recovery`, time look-ups in `lookup`.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import struct
import uuid
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from suiro.clock import Clock
from suiro.errors import ConfigError
from suiro.log import lookup, producer_snapshot
from suiro.log.admission import Origin, admit
from suiro.log.checkpoints import read_partition_metadata, write_partition_metadata
from suiro.log.config import LogConfig
from suiro.log.errors import OffsetOutOfRangeError, OutOfOrderSequenceError, StorageError
from suiro.log.files import FileHandle
from suiro.log.leader_epochs import LeaderEpochs
from suiro.log.producer_state import AppendedBatch, ProducerEntry, ProducerStates
from suiro.log.recovery import open_segments
from suiro.log.retention import SegmentFacts, expired_segments
from suiro.log.segment import MAX_RELATIVE_OFFSET, Segment
from suiro.log.transaction_index import AbortedTransaction
from suiro.protocol.crc32c import crc32c
from suiro.protocol.record_batch import HEADER_SIZE, BatchHeader, pack_header
from suiro.protocol.records import control_batch

PRODUCER_ID_EXPIRATION_MS = 24 * 60 * 60 * 1000
DELETED_SUFFIX = "-delete"
_SEALED_SEGMENTS_OPEN = 4
_PREFIX = struct.Struct(">qii")  # base offset, length, leader epoch: what stands before the magic byte
_LOG_APPEND_TIME_BIT = 0x08

Verify = Callable[[int, int], None]
Region = tuple[FileHandle, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Where an append went. A duplicate was not written again; its offsets are the first writing's."""

    base_offset: int
    last_offset: int
    log_append_time: int  # milliseconds; -1 unless message.timestamp.type is LogAppendTime
    log_start_offset: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """File regions of whole batches. Keep the handle in each region until it is sent; never its `int()`."""

    regions: list[Region]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]  # (producer id, first offset); empty for read_uncommitted


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """Files to sync. `run` may be called in any thread; then hand `end_offset` to `PartitionLog.flushed`."""

    handles: tuple[FileHandle, ...]
    end_offset: int

    def run(self) -> None:
        for handle in self.handles:
            os.fsync(handle)


class PartitionLog:
    """Open one with `open`. After `close` or `delete` nothing may be appended."""

    def __init__(
        self,
        directory: Path,
        *,
        topic: str,
        partition: int,
        topic_id: UUID,
        config: LogConfig,
        clock: Clock,
        segments: list[Segment],
        producers: ProducerStates,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.log_end_offset = log_end_offset
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.leader_epochs = LeaderEpochs(directory)
        self._clock = clock
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._producers = producers
        self._recently_read: dict[int, Segment] = {}
        self._records_since_flush = 0
        self._open = True

    @classmethod
    def open(
        cls,
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
    ) -> PartitionLog:
        """Create the partition, or open and, unless it was closed cleanly, recover it."""
        directory.mkdir(parents=True, exist_ok=True)
        found_id = read_partition_metadata(directory)
        if found_id is None:
            write_partition_metadata(directory, topic_id)
        elif found_id != topic_id:
            raise ConfigError(f"{directory} belongs to topic id {found_id}, not to {topic_id} ({topic})")
        now_ms = clock.wall_ms()
        opened = open_segments(
            directory,
            config,
            clean=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
        )
        opened.producers.expire(now_ms - PRODUCER_ID_EXPIRATION_MS)
        start = min(max(log_start_offset, opened.segments[0].base_offset), opened.log_end_offset)
        log = cls(
            directory,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            clock=clock,
            segments=opened.segments,
            producers=opened.producers,
            log_start_offset=start,
            log_end_offset=opened.log_end_offset,
            recovery_point=min(recovery_point, opened.log_end_offset),
        )
        log.leader_epochs.cut_end(opened.log_end_offset)
        return log

    # Where the log stands

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        first = self._producers.first_unstable_offset
        return self.log_end_offset if first is None else max(first, self.log_start_offset)

    @property
    def leader_epoch(self) -> int:
        """The epoch of the newest batch; -1 in a log that never had one."""
        return self.leader_epochs.latest

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    def producer_states(self) -> tuple[ProducerEntry, ...]:
        return tuple(self._producers.entries.values())

    def ongoing_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction here, or None."""
        return self._producers.open_transactions.get(producer_id)

    # Append

    def append(
        self,
        data: bytes | bytearray | memoryview,
        *,
        leader_epoch: int = 0,
        origin: Origin = "client",
        verify: Verify | None = None,
    ) -> Appended:
        """Write one batch (or several, of a coordinator) behind the log's end. Raises a LogError.

        `verify(producer_id, producer_epoch)` is called before a batch opens a transaction here and
        raises to refuse it (KIP-890 part 1).
        """
        self._check_open()
        now_ms = self._clock.wall_ms()
        batches = admit(data, self.config, origin=origin, now_ms=now_ms)
        first = batches[0][1]
        if len(batches) > 1:
            self._check_together(batches)
        elif first.producer_id >= 0:
            duplicate = self._check_producer(first, sequenced=origin == "client")
            if duplicate is not None:
                return Appended(
                    base_offset=duplicate.first_offset,
                    last_offset=duplicate.last_offset,
                    log_append_time=self._log_append_time(duplicate.timestamp),
                    log_start_offset=self.log_start_offset,
                    duplicate=True,
                )
        if (
            verify is not None
            and first.is_transactional
            and self.ongoing_transaction(first.producer_id) is None
        ):
            verify(first.producer_id, first.producer_epoch)
        base_offset = self.log_end_offset
        view = memoryview(data)
        for position, header in batches:
            self._write(view[position : position + header.size], header, leader_epoch, now_ms)
        return Appended(
            base_offset=base_offset,
            last_offset=self.log_end_offset - 1,
            log_append_time=self._log_append_time(now_ms),
            log_start_offset=self.log_start_offset,
        )

    def append_control(
        self,
        commit: bool,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        timestamp: int | None = None,
        *,
        leader_epoch: int = 0,
    ) -> int:
        """Write a commit or abort marker, which ends the producer's transaction here; the marker's offset."""
        self._check_open()
        now_ms = self._clock.wall_ms()
        self._producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        batch = control_batch(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms if timestamp is None else timestamp,
        )
        ((_, header),) = admit(batch, self.config, origin="coordinator", now_ms=now_ms)
        offset = self.log_end_offset
        segment = self._write(memoryview(batch), header, leader_epoch, now_ms)
        completed = self._producers.add_marker(
            producer_id,
            producer_epoch,
            coordinator_epoch,
            offset=offset,
            timestamp=now_ms,
            aborted=not commit,
        )
        if completed is not None and completed.aborted:
            entry = AbortedTransaction(
                producer_id, completed.first_offset, completed.last_offset, self.last_stable_offset
            )
            segment.transaction_index.add(entry)
        return offset

    def _check_producer(self, header: BatchHeader, *, sequenced: bool) -> AppendedBatch | None:
        producers, producer_id = self._producers, header.producer_id
        first, last = header.base_sequence, header.last_sequence
        if sequenced:
            duplicate = producers.duplicate_of(producer_id, header.producer_epoch, first, last)
            if duplicate is not None:
                return duplicate
        try:
            producers.check_batch(
                producer_id,
                header.producer_epoch,
                first,
                transactional=header.is_transactional,
                check_sequence=sequenced,
            )
        except OutOfOrderSequenceError:
            # After a restart the snapshot knows only the last of the five batches. The client may be
            # repeating an older one whose answer was lost, so the log is asked before it is refused.
            entry = producers.entries[producer_id]
            if entry.whole:
                raise
            batches = lookup.last_batches_of(self._segments, producer_id, entry.producer_epoch)
            producers.refill(producer_id, entry.producer_epoch, batches)
            duplicate = producers.duplicate_of(producer_id, header.producer_epoch, first, last)
            if duplicate is None:
                raise
            return duplicate
        return None

    def _check_together(self, batches: list[tuple[int, BatchHeader]]) -> None:
        """Several batches are tried on a copy first, so that none is written where one is refused."""
        trial = self._producers.copy_of(header.producer_id for _, header in batches)
        offset = self.log_end_offset
        for _, header in batches:
            if header.producer_id >= 0:
                trial.check_batch(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    transactional=header.is_transactional,
                )
                trial.add_batch(
                    header.producer_id,
                    header.producer_epoch,
                    header.last_sequence,
                    first_offset=offset,
                    last_offset=offset + header.last_offset_delta,
                    timestamp=0,
                    transactional=header.is_transactional,
                )
            offset += header.last_offset_delta + 1

    def _write(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> Segment:
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        max_timestamp, size = header.max_timestamp, header.size
        buffers: tuple[bytes | memoryview, ...]
        if self.config.message_timestamp_type == "LogAppendTime" and not header.is_control:
            max_timestamp = now_ms
            stamped = dataclasses.replace(
                header,
                base_offset=base_offset,
                partition_leader_epoch=leader_epoch,
                attributes=header.attributes | _LOG_APPEND_TIME_BIT,
                max_timestamp=now_ms,
            )
            records = batch[HEADER_SIZE:]
            buffers = (pack_header(stamped, crc_tail=crc32c(records)), records)
        else:
            buffers = (_PREFIX.pack(base_offset, header.length, leader_epoch), batch[_PREFIX.size :])
        segment = self._segment_for(size, last_offset, max_timestamp, now_ms)
        position = segment.size
        segment.append(buffers, size, last_offset=last_offset, max_timestamp=max_timestamp)
        self.log_end_offset = last_offset + 1
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.add(leader_epoch, base_offset)
        if header.producer_id >= 0 and not header.is_control:
            known = len(self._producers.open_transactions)
            # A producer expires by when it last wrote, not by the event time of its records, which may
            # be years ago: forgetting a live producer would let its retries in twice.
            self._producers.add_batch(
                header.producer_id,
                header.producer_epoch,
                header.last_sequence,
                first_offset=base_offset,
                last_offset=last_offset,
                timestamp=now_ms,
                transactional=header.is_transactional,
            )
            if len(self._producers.open_transactions) > known:
                segment.remember(base_offset, position)
        self._records_since_flush += header.count
        if self._records_since_flush >= self.config.flush_messages:
            self.flush()
        return segment

    def _segment_for(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        """The active segment, a new one where this batch is too much, too late or too far for it."""
        segment = self._segments[-1]
        if segment.size == 0:
            return segment
        first = segment.first_timestamp
        waited = max_timestamp - first if first >= 0 and max_timestamp >= 0 else now_ms - segment.created_ms
        if (
            segment.size + size > self.config.segment_bytes
            or waited > self.config.segment_ms
            or segment.indexes_full
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        ):
            return self.roll()
        return segment

    def roll(self) -> Segment:
        """Seal the active segment and begin a new one at the log's end."""
        active = self._segments[-1]
        if active.size == 0:
            return active
        base = self.log_end_offset
        new = Segment(self.directory, base, self.config, created_ms=self._clock.wall_ms())
        new.create()
        active.seal()
        try:
            producer_snapshot.write(self.directory, base, self._producers.entries.values())
        except OSError:
            pass  # Recovery then starts from an older one.
        self._segments.append(new)
        self._bases.append(base)
        return new

    # Read

    def read(
        self, offset: int, *, max_bytes: int, read_committed: bool, min_one_batch: bool = True
    ) -> ReadResult:
        """The batches from the one that holds `offset` on, up to the high watermark or last stable offset.

        The first batch is whole even when it is larger than `max_bytes`, unless `min_one_batch` is off.
        Raises OffsetOutOfRangeError.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic}-{self.partition}: the log has "
                f"{self.log_start_offset} to {self.log_end_offset}"
            )
        bound = self.last_stable_offset if read_committed else self.log_end_offset
        regions: list[Region] = []
        aborted: list[tuple[int, int]] = []
        if offset < bound:
            number = bisect_right(self._bases, offset) - 1
            for segment in self._segments[max(number, 0) :]:
                found = self._region(segment, offset, bound, max_bytes)
                if found is None:
                    continue
                region, upper = found
                if region[2] <= max_bytes or min_one_batch:
                    regions.append(region)
                    if read_committed:
                        aborted = self._aborted(offset, upper)
                break
        return ReadResult(
            regions=regions,
            size=sum(region[2] for region in regions),
            high_watermark=self.log_end_offset,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
            aborted=aborted,
        )

    def _region(self, segment: Segment, offset: int, bound: int, max_bytes: int) -> tuple[Region, int] | None:
        """What of a segment a read takes, and the offset it ends before; None if nothing is left in it."""
        start = segment.position_of(offset)
        if start is None:
            return None
        end, upper = segment.size, bound
        if segment is not self._segments[-1]:
            upper = min(bound, self._bases[bisect_right(self._bases, segment.base_offset)])
            self._touch(segment)
        if bound < self.log_end_offset and upper == bound:
            bound_position = segment.position_of(bound)
            end = segment.size if bound_position is None else bound_position
        if start >= end:
            return None
        stop, stop_offset = segment.whole_batches(start, end, max_bytes=max_bytes)
        if stop_offset is not None:
            upper = stop_offset
        if stop < segment.size or segment is self._segments[-1]:
            segment.remember(upper, stop)
        return (segment.handle, start, stop - start), upper

    def _aborted(self, offset: int, upper: int) -> list[tuple[int, int]]:
        """Aborted transactions that overlap [offset, upper), as (producer id, first offset)."""
        found: list[tuple[int, int]] = []
        for segment in self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]:
            for entry in segment.transaction_index.entries:
                if entry.last_offset >= offset and entry.first_offset < upper:
                    found.append((entry.producer_id, entry.first_offset))
                if entry.last_stable_offset >= upper:
                    return found
        return found

    def _touch(self, segment: Segment) -> None:
        """Keep the sealed segments that were read last open, and let go of the others."""
        recent = self._recently_read
        recent.pop(segment.base_offset, None)
        recent[segment.base_offset] = segment
        if len(recent) > _SEALED_SEGMENTS_OPEN:
            recent.pop(next(iter(recent))).release()

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at least this late, or None."""
        return lookup.first_at_or_after(self._segments, timestamp, log_start_offset=self.log_start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record that has the largest timestamp, or None."""
        return lookup.first_latest(self._segments, log_start_offset=self.log_start_offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) of the largest epoch at most this one, or None where it is not known."""
        return self.leader_epochs.end_offset(leader_epoch, log_end_offset=self.log_end_offset)

    # Retire

    def delete_records_before(self, offset: int) -> int:
        """Move the log's start (-1: to the high watermark); segments before it go. The new start."""
        offset = self.log_end_offset if offset == -1 else offset
        if not 0 <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"cannot delete before {offset}: the log ends at {self.log_end_offset}"
            )
        if offset > self.log_start_offset:
            self._start_at(offset)
            keep = max(bisect_right(self._bases, offset) - 1, 0)
            self._drop_oldest(keep)
        return self.log_start_offset

    def apply_retention(self, now_ms: int | None = None) -> int:
        """Delete the segments that `retention.*` no longer asks for; how many. Forget idle producers."""
        now_ms = self._clock.wall_ms() if now_ms is None else now_ms
        self._producers.expire(now_ms - PRODUCER_ID_EXPIRATION_MS)
        ends = [*self._bases[1:], self.log_end_offset]
        facts = [
            SegmentFacts(end, segment.size, segment.latest_ms)
            for end, segment in zip(ends, self._segments, strict=True)
        ]
        count = expired_segments(facts, self.config, now_ms=now_ms, log_start_offset=self.log_start_offset)
        if count == len(self._segments):
            self.roll()
        self._drop_oldest(count)
        return count

    def _drop_oldest(self, count: int) -> None:
        if count == 0:
            return
        for segment in self._segments[:count]:
            self._recently_read.pop(segment.base_offset, None)
            segment.unlink()
        del self._segments[:count], self._bases[:count]
        if self._bases[0] > self.log_start_offset:
            self._start_at(self._bases[0])
        producer_snapshot.remove(self.directory, keep=self._bases)

    def _start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self.recovery_point = max(self.recovery_point, offset)
        self.leader_epochs.cut_start(offset)

    # Disk

    def flush(self) -> None:
        """Sync everything to disk; then `recovery_point` is the log's end."""
        job = self.flush_job()
        job.run()
        self.flushed(job.end_offset)

    def flush_job(self) -> FlushJob:
        """What a flush has to sync, to be run in another thread while appends go on."""
        self._records_since_flush = 0
        handles: list[FileHandle] = []
        for number in range(max(bisect_right(self._bases, self.recovery_point) - 1, 0), len(self._segments)):
            handles += self._segments[number].handles_to_sync()
            if number + 1 < len(self._segments):
                self._touch(self._segments[number])
        return FlushJob(handles=tuple(handles), end_offset=self.log_end_offset)

    def flushed(self, end_offset: int) -> None:
        self.recovery_point = max(self.recovery_point, end_offset)

    def close(self) -> None:
        """Sync, and leave a snapshot at the log's end, so that the next open scans nothing."""
        if not self._open:
            return
        self._open = False
        self.flush()
        end = self.log_end_offset
        producer_snapshot.write(self.directory, end, self._producers.entries.values())
        producer_snapshot.remove(self.directory, keep=[*self._bases, end])
        for segment in self._segments:
            segment.seal()

    def abandon(self) -> None:
        """Let go of the files without writing anything: what the death of the process would leave."""
        self._open = False
        self._segments, self._bases = [], []

    def delete(self) -> None:
        """Remove the partition. Its directory is renamed first, so that a crash leaves nothing half there."""
        self._open = False
        suffix = f".{uuid.uuid4().hex}{DELETED_SUFFIX}"
        doomed = self.directory.with_name(self.directory.name[: 255 - len(suffix)] + suffix)
        os.rename(self.directory, doomed)
        shutil.rmtree(doomed, ignore_errors=True)
        self._segments, self._bases = [], []

    def _log_append_time(self, timestamp: int) -> int:
        return timestamp if self.config.message_timestamp_type == "LogAppendTime" else -1

    def _check_open(self) -> None:
        if not self._open:
            raise StorageError(f"{self.topic}-{self.partition} is closed")
