"""Reading records that are only in the remote tier, as if they were here.

Called on the event loop's thread; the store is asked in the readers' threads. What a segment holds is the business of
`suiro.log.tier.RemoteReader`; here a read finds its segment, goes on to the next one, or to the local log, where one
has nothing for it, and collects the aborted transactions of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from suiro.broker.storage.topics import Partition
from suiro.broker.storage.workers import Workers
from suiro.log import OffsetOutOfRangeError, ReadResult, Region
from suiro.log.tier import ObjectMissingError, RemoteLog, RemoteRead, RemoteReader


class TierReads:
    """`remote_of` gives what the tier has of a partition."""

    def __init__(self, reader: RemoteReader, workers: Workers, remote_of: Callable[[Partition], RemoteLog]) -> None:
        self._reader = reader
        self._workers = workers
        self._remote_of = remote_of

    async def read(
        self,
        partition: Partition,
        offset: int,
        *,
        max_bytes: int,
        read_committed: bool,
        min_one_batch: bool = True,
    ) -> ReadResult:
        """Returns the result of `PartitionLog.read` as if the remote segments were here.

        Raises OffsetOutOfRangeError and RemoteStoreError.
        """
        log = partition.log
        read = await self._read(partition, offset, max_bytes)
        if isinstance(read, int):
            if read < log.local_log_start_offset:
                raise OffsetOutOfRangeError(
                    f"offset {read} of {log.topic}-{log.partition} is neither in the remote tier nor here"
                )
            return log.read(
                read,
                max_bytes=max_bytes,
                read_committed=read_committed,
                min_one_batch=min_one_batch,
            )
        regions: list[Region] = [read.region]
        aborted: list[tuple[int, int]] = []
        if read.region[2] > max_bytes and not min_one_batch:
            regions = []
        elif read_committed:
            aborted = await self._aborted(partition, offset, read.next_offset)
        return ReadResult(
            regions=regions,
            size=sum(region[2] for region in regions),
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted=aborted,
        )

    async def offset_for_timestamp(self, partition: Partition, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at least this late, in the tier or here."""
        log, remote, offset = partition.log, self._remote_of(partition), 0
        while not partition.deleted:  # As in `_read`, it looks again after each wait.
            offset = max(offset, log.log_start_offset)
            late = (one for one in remote.from_offset(offset) if one.max_timestamp >= timestamp)
            segment = next(late, None)
            if segment is None or segment.start_offset >= log.local_log_start_offset:
                break
            look_up = partial(self._reader.first_at_or_after, segment, timestamp, from_offset=offset)
            try:
                found = await self._workers.run(look_up)
            except ObjectMissingError:
                if segment in remote.readable:
                    raise
                continue
            if found is not None:
                return found
            offset = segment.next_offset
        look_ups = log.lookups_by_time(timestamp)
        while not partition.deleted and (look_up_here := next(look_ups, None)):
            found = await self._workers.run(look_up_here.run)
            if found is not None:
                return found
        return None

    async def _read(self, partition: Partition, offset: int, max_bytes: int) -> RemoteRead | int:
        """Read the tier from an offset on; if it has nothing, returns the offset to continue at behind the tier.

        While it waits, segments are replaced, let go of, and copied anew, so it looks again after each.
        """
        remote = self._remote_of(partition)
        while segments := remote.from_offset(offset):
            segment = segments[0]
            if segment.size > 0:  # else cleaning left nothing of it
                try:
                    call = partial(self._reader.read, segment, offset, max_bytes=max_bytes)
                    found = await self._workers.run(call)
                except ObjectMissingError:
                    if segment in remote.readable:
                        raise
                    offset = max(offset, partition.log.log_start_offset)
                    continue
                if found is not None:
                    return found
            offset = segment.next_offset
        return offset

    async def _aborted(self, partition: Partition, offset: int, upper: int) -> list[tuple[int, int]]:
        """Aborted transactions that overlap [offset, upper): their markers may lie in later segments, or here."""
        remote, reached = self._remote_of(partition), offset
        found: list[tuple[int, int]] = []
        # During a wait segments are replaced, and further local ones copied, so the list is read again after each.
        while True:
            segments = (one for one in remote.from_offset(reached) if not one.transaction_index_empty)
            segment = next(segments, None)
            if segment is None:
                break
            try:
                entries = await self._workers.run(partial(self._reader.aborted, segment))
            except ObjectMissingError:
                if segment in remote.readable:
                    raise
                continue
            reached = segment.next_offset
            for entry in entries:
                if entry.last_offset >= offset and entry.first_offset < upper:
                    found.append((entry.producer_id, entry.first_offset))
                if entry.last_stable_offset >= upper:
                    return found
        return found + partition.log.aborted_transactions(max(offset, remote.next_offset), upper)
