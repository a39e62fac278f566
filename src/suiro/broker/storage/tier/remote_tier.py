"""The remote tier of this node: copies segments, removes them, and reads those that are only there.

Everything here runs on the event loop's thread; the store is called from `Workers`. A tiered partition has at most one
task: it removes garbage, copies closed segments in order, and removes those that retention does not keep. A failure of
the store ends the task. It starts again after a growing pause; meanwhile the segments stay on this disk, and producers
go on.

The order of steps, in which a crash between any two of them loses nothing:

    copy     segment synced here -> COPY_STARTED synced -> objects stored -> COPY_FINISHED synced
             -> only now may the local segment go
    remove   the log's start moves (retention) -> DELETE_STARTED -> objects removed -> DELETE_FINISHED
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol
from uuid import UUID, uuid4

from suiro.broker.metrics.metrics import Metrics
from suiro.broker.settings.cluster_state import ClusterState
from suiro.broker.storage.cleaner import cleaner_settings
from suiro.broker.storage.tier.local_segment import LocalSegment, next_to_copy
from suiro.broker.storage.tier.metadata_topic import MetadataTopic
from suiro.broker.storage.tier.rate_limit import RateLimit
from suiro.broker.storage.tier.recleaning import (
    SCRATCH,
    Recleaning,
    RunCleaning,
    clean_in_a_process,
    windows,
)
from suiro.broker.storage.tier.tier_reads import TierReads
from suiro.broker.storage.topics import Partition, TopicRegistry
from suiro.broker.storage.workers import Workers, sync
from suiro.clock import Clock, SystemClock
from suiro.config import NodeSettings
from suiro.log import LogError, PartitionLog
from suiro.log.tier import (
    RemoteLog,
    RemoteReader,
    RemoteSegment,
    RemoteStore,
    RemoteStoreError,
    SegmentState,
    Source,
    remove,
    upload,
)

logger = logging.getLogger(__name__)

_Key = tuple[UUID, int]
_CLEANED = "remote-cleaned-offsets"
"""Section of the node's state: the offset up to which a compacted topic's keys were applied to its remote segments."""


@dataclass(slots=True, kw_only=True)
class _Tiered:
    """One partition's part of the tier."""

    topic_id: UUID
    partition: int
    remote: RemoteLog = field(default_factory=RemoteLog)
    task: Task[None] | None = None
    failures: int = 0
    pausing: bool = False  # after a failure

    @property
    def key(self) -> str:
        return f"{self.topic_id}:{self.partition}"


class TierHost(Protocol):
    """The services of the node that the tier uses."""

    node_id: int
    data: Path
    loop: AbstractEventLoop
    clock: Clock
    settings: NodeSettings
    cluster_state: ClusterState
    topics: TopicRegistry
    metrics: Metrics

    def on_settings(self, callback: Callable[[NodeSettings], None]) -> None: ...


class RemoteTier:
    """Made by a broker with `remote.log.storage.system.enable`; `load` before it serves, `close` when it stops."""

    def __init__(self, host: TierHost, store: RemoteStore) -> None:
        settings, clock = host.settings, SystemClock()
        self._host = host
        self._store = store
        self._tiered: dict[_Key, _Tiered] = {}
        self._copying = RateLimit(clock, lambda: host.settings.remote_log_manager_copy_max_bytes_per_second)
        self._fetching = RateLimit(clock, lambda: host.settings.remote_log_manager_fetch_max_bytes_per_second)
        self._copiers = Workers(
            host.loop, name="remote-copier", count=settings.remote_log_manager_copier_thread_pool_size
        )
        self._readers = Workers(host.loop, name="remote-reader", count=settings.remote_log_reader_threads)
        self._metadata = MetadataTopic(host.topics, host.clock, self._copiers)
        self._reader = RemoteReader(
            store,
            directory=host.data,
            index_cache_bytes=settings.remote_log_index_file_cache_total_size_bytes,
            chunk_cache_bytes=settings.remote_log_chunk_cache_total_size_bytes,
            read_ahead_bytes=settings.remote_log_read_ahead_bytes,
            proceed=self._fetching,
        )
        self._reads = TierReads(self._reader, self._readers, self._remote)
        self.read = self._reads.read
        self.offset_for_timestamp = self._reads.offset_for_timestamp
        self._cleaned: dict[str, int] = dict(host.cluster_state.read(_CLEANED, {}))
        self.run_cleaning: RunCleaning = clean_in_a_process
        self._open = True
        host.on_settings(self._settings_changed)

    def _settings_changed(self, settings: NodeSettings) -> None:
        self._copiers.resize(settings.remote_log_manager_copier_thread_pool_size)
        self._readers.resize(settings.remote_log_reader_threads)
        self._reader.keep_indexes(settings.remote_log_index_file_cache_total_size_bytes)

    def load(self) -> None:
        """Replay the metadata, and tell the logs what is in the tier."""
        shutil.rmtree(self._host.data / SCRATCH, ignore_errors=True)
        for segment in self._metadata.replay():
            self._of(segment.topic_id, segment.partition).remote.apply(segment)
        for tiered in self._tiered.values():
            tiered.remote.abandon_copies()
        for partition in self._host.topics.partitions():
            if partition.log.config.remote_storage_enable:
                remote = self._of(partition.log.topic_id, partition.index).remote
                partition.log.found_in_tier(remote.start_offset, remote.next_offset, remote.leader_epochs)

    def close(self) -> None:
        """Stop. The next start removes the objects of unfinished copies."""
        self._open = False
        self._copying.stop()
        self._fetching.stop()
        tasks = [tiered.task for tiered in self._tiered.values() if tiered.task is not None]
        for task in tasks:
            task.cancel()
        self._copiers.close()
        self._readers.close()
        if not self._host.loop.is_running():
            self._host.loop.run_until_complete(_ended(tasks))

    def work(self) -> None:
        """Start the tasks that have work. Called every `remote.log.manager.task.interval.ms`."""
        for partition in self._host.topics.partitions():
            if partition.log.config.remote_storage_enable:
                self._of(partition.log.topic_id, partition.index)
        for tiered in list(self._tiered.values()):
            self._begin(tiered)

    # Look-ups of the handlers

    def highest_offset(self, partition: Partition) -> int:
        """The last copied offset; -1 where nothing is copied."""
        return self._remote(partition).next_offset - 1

    def earliest_pending_upload(self, partition: Partition) -> int:
        """The first offset that is not copied yet; -1 where that is not known (KIP-1023)."""
        log, following = partition.log, self._remote(partition).next_offset
        if following > 0:
            return max(following, log.log_start_offset)
        return log.log_start_offset if log.local_log_start_offset == log.log_start_offset else -1

    def size(self, partition: Partition) -> int:
        """Bytes of what readers find in the remote store."""
        return self._remote(partition).size

    def not_copied(self, partition: Partition) -> tuple[int, int]:
        """(bytes, number) of closed segments that are only here."""
        following = self._remote(partition).next_offset
        waiting = [segment.size for segment in partition.log.segments[:-1] if segment.base_offset >= following]
        return sum(waiting), len(waiting)

    def _remote(self, partition: Partition) -> RemoteLog:
        return self._of(partition.log.topic_id, partition.index).remote

    def holds_cleaning(self, log: PartitionLog) -> bool:
        """Whether the cleaner must wait, until the tier has caught up with its last round."""
        tiered = self._tiered.get((log.topic_id, log.partition))
        if tiered is None or not log.config.remote_storage_enable:
            return False
        if not log.config.copies_to_remote:
            # The tier is not cleaned either. A tombstone that went here would leave older records of its key there.
            return bool(tiered.remote.readable)
        behind = tiered.remote.readable and (log.cleaned_offset or 0) > self._cleaned.get(tiered.key, 0)
        return tiered.task is not None or bool(behind)

    # The work on one partition

    def _of(self, topic_id: UUID, partition: int) -> _Tiered:
        key = (topic_id, partition)
        if key not in self._tiered:
            self._tiered[key] = _Tiered(topic_id=topic_id, partition=partition)
        return self._tiered[key]

    def _partition(self, tiered: _Tiered) -> Partition | None:
        """None once the topic is deleted."""
        topic = self._host.topics.topic_by_id(tiered.topic_id)
        if topic is None or tiered.partition >= len(topic.partitions):
            return None
        return topic.partitions[tiered.partition]

    def _begin(self, tiered: _Tiered) -> None:
        if self._open and tiered.task is None and not tiered.pausing and self._has_work(tiered):
            tiered.task = self._host.loop.create_task(self._work(tiered))

    def _has_work(self, tiered: _Tiered) -> bool:
        partition, remote = self._partition(tiered), tiered.remote
        if partition is None and not remote.garbage and not remote.readable:
            # `work` may have come before the task looked again.
            self._tiered.pop((tiered.topic_id, tiered.partition), None)
            self._set_cleaned(tiered.key, None)
            return False
        if remote.garbage or self._expired(tiered):
            return True
        if partition is None:
            return False
        return next_to_copy(partition.log, remote) is not None or self._needs_cleaning(tiered, partition.log)

    async def _work(self, tiered: _Tiered) -> None:
        settings, pause = self._host.settings, 0.0
        try:
            await self._remove_garbage(tiered)
            await self._copy(tiered)
            await self._clean(tiered)
            self._expire(tiered)
            await self._remove_garbage(tiered)
            tiered.failures = 0
        except (RemoteStoreError, LogError, OSError) as error:
            longest = settings.remote_log_manager_task_retry_backoff_max_ms
            first = settings.remote_log_manager_task_retry_backoff_ms
            pause = min(longest, first * 2 ** min(tiered.failures, 30)) / 1000
            tiered.failures += 1
            if self._open:
                partition = self._partition(tiered)
                name = f"{partition.topic}-{partition.index}" if partition is not None else "a deleted topic"
                logger.warning("remote tier of %s: %s; trying again in %.1f s", name, error, pause)
        finally:
            tiered.task = None
        if self._open:
            tiered.pausing = pause > 0
            self._host.loop.call_later(pause, self._go_on, tiered)

    def _go_on(self, tiered: _Tiered) -> None:
        tiered.pausing = False
        self._begin(tiered)

    async def _copy(self, tiered: _Tiered) -> None:
        while (partition := self._partition(tiered)) is not None:
            found = next_to_copy(partition.log, tiered.remote)
            if found is None:
                return
            await self._copy_one(tiered, partition, found)

    async def _clean(self, tiered: _Tiered) -> None:
        """Clean a compacted topic's older remote segments with the keys of the newer ones."""
        partition, remote, key = self._partition(tiered), tiered.remote, tiered.key
        if partition is None or not self._needs_cleaning(tiered, partition.log):
            return
        log = partition.log
        begin, end = self._cleaned.get(key, log.log_start_offset), remote.next_offset
        if key not in self._cleaned:
            # All count as never cleaned. Each is cleaned with the keys of all, however many the map takes at a time.
            while begin < end:
                reached = await self._clean_again(tiered, log, list(remote.readable), begin=begin, end=end)
                if reached <= begin:
                    raise RemoteStoreError(f"no key of offset {begin} or later was found for cleaning")
                begin = reached
            self._set_cleaned(key, end)
            return
        older = [segment for segment in remote.readable if segment.start_offset < begin]
        if older:
            end = await self._clean_again(tiered, log, older, begin=begin, end=end)
        self._set_cleaned(key, min(end, log.cleaned_offset or 0))

    async def _clean_again(
        self, tiered: _Tiered, log: PartitionLog, older: Sequence[RemoteSegment], *, begin: int, end: int
    ) -> int:
        """Clean these segments with the keys from `begin` to `end`, and store what is left of each anew.

        Returns the offset up to which the keys counted.
        """
        run, reached = self._copiers.run, end
        work = Recleaning(
            self._store,
            log,
            directory=self._host.data / SCRATCH / f"{log.topic_id}-{log.partition}",
            settings=cleaner_settings(self._host.settings),
            now_ms=self._host.clock.wall_ms(),
            proceed=self._copying,
            run=self.run_cleaning,
        )
        try:
            newer = [segment for segment in tiered.remote.readable if segment.next_offset > begin]
            await run(partial(work.fetch_newer, newer))
            for window in windows(older):
                clean = partial(work.clean, window, first_dirty_offset=begin, end_offset=end)
                reached = min(reached, await run(clean))
                for segment in window:
                    sources = await run(partial(work.cleaned_sources, segment))
                    if sources is not None:
                        new = replace(
                            segment,
                            segment_id=uuid4(),
                            size=sources[0].size,
                            state=SegmentState.COPY_STARTED,
                            transaction_index_empty=all(source.kind != "txnindex" for source in sources),
                            objects=(),
                        )
                        await self._store_segment(tiered, new, sources)
                await run(partial(work.drop, window))
        finally:
            work.close()
        return reached

    def _needs_cleaning(self, tiered: _Tiered, log: PartitionLog) -> bool:
        if not log.config.compacted or not log.config.copies_to_remote or not tiered.remote.readable:
            return False
        if log.cleaning.is_running:
            return False  # It replaces files with markers of transactions that have records in the tier.
        return min(tiered.remote.next_offset, log.cleaned_offset or 0) > self._cleaned.get(tiered.key, -1)

    def _set_cleaned(self, key: str, offset: int | None) -> None:
        """None: nobody knows what the remote segments were cleaned with."""
        if self._cleaned.get(key) == offset:
            return
        cleaned = dict(self._cleaned)
        if offset is None:
            del cleaned[key]
        else:
            cleaned[key] = offset
        self._host.cluster_state.write(_CLEANED, cleaned)
        self._cleaned = cleaned

    async def _copy_one(self, tiered: _Tiered, partition: Partition, local: LocalSegment) -> None:
        log = partition.log
        if log.recovery_point < local.end_offset:
            # Records in the tier must be on disk here first: after a crash their offsets would be given out again.
            await sync(log, self._copiers.run)
        sources = local.sources()
        segment = RemoteSegment(
            topic=log.topic,
            topic_id=log.topic_id,
            partition=log.partition,
            segment_id=uuid4(),
            start_offset=local.start_offset,
            end_offset=local.end_offset - 1,
            broker_id=self._host.node_id,
            # The time of writing if the records have none: otherwise retention.ms would take them for very old.
            max_timestamp=local.segment.latest_ms,
            event_timestamp=self._host.clock.wall_ms(),
            leader_epochs=local.leader_epochs,
            size=sources[0].size,
            state=SegmentState.COPY_STARTED,
            transaction_index_empty=not any(source.kind == "txnindex" for source in sources),
        )
        if not log.config.compacted:
            self._set_cleaned(tiered.key, None)  # The topic may be compacted again.
        elif not tiered.remote.readable:
            self._set_cleaned(tiered.key, 0)  # From the first one on it is known what they were cleaned with.
        counts = self._host.metrics.topic(log.topic)
        counts.remote_copy_requests += 1
        try:
            await self._store_segment(tiered, segment, sources)
        except (RemoteStoreError, OSError):
            counts.remote_copy_errors += 1
            raise
        counts.remote_copy_bytes += segment.size
        log.tiered_end_offset = tiered.remote.next_offset

    async def _store_segment(self, tiered: _Tiered, segment: RemoteSegment, sources: list[Source]) -> None:
        self._note(tiered, segment)
        try:
            await self._metadata.sync()
            send = partial(upload, self._store, segment, sources, proceed=self._copying)
            objects = await self._copiers.run(send)
        except (RemoteStoreError, OSError):
            self._note(tiered, replace(segment, state=SegmentState.DELETE_STARTED))
            raise
        finished = replace(segment, state=SegmentState.COPY_FINISHED, objects=objects)
        self._note(tiered, finished)
        await self._metadata.sync()

    def _expire(self, tiered: _Tiered) -> None:
        expired, partition = self._expired(tiered), self._partition(tiered)
        if not expired:
            return
        if partition is not None:
            # First the log gives up these records. If the tier was turned off, the local ones stay.
            log = partition.log
            tiered_still = log.config.remote_storage_enable
            start = expired[-1].next_offset if tiered_still else log.local_log_start_offset
            log.retention.delete_records_before(max(log.log_start_offset, min(start, log.log_end_offset)))
            partition.grown()  # Fetch sessions tell their clients the new start, as after local retention.
        for segment in expired:
            self._note(tiered, replace(segment, state=SegmentState.DELETE_STARTED))
        if partition is not None:
            # If the tier is turned on again, the expired part is copied again before it may be deleted here.
            partition.log.tiered_end_offset = tiered.remote.next_offset

    def _expired(self, tiered: _Tiered) -> Sequence[RemoteSegment]:
        partition, remote = self._partition(tiered), tiered.remote
        if partition is None:
            return tuple(remote.readable)
        log = partition.log
        if not log.config.remote_storage_enable:
            return tuple(remote.readable)
        return remote.expired(
            log.config,
            now_ms=self._host.clock.wall_ms(),
            log_start_offset=log.log_start_offset,
            local_only=log.segment_facts(from_offset=remote.next_offset),
        )

    async def _remove_garbage(self, tiered: _Tiered) -> None:
        for segment in tiered.remote.garbage:
            if segment.state is not SegmentState.DELETE_STARTED:
                segment = replace(segment, state=SegmentState.DELETE_STARTED)
                self._note(tiered, segment)
            await self._copiers.run(partial(remove, self._store, segment, proceed=self._copying))
            self._reader.forget(segment)
            self._note(tiered, replace(segment, state=SegmentState.DELETE_FINISHED))

    def _note(self, tiered: _Tiered, segment: RemoteSegment) -> None:
        """Write a new state, then apply it. Raises LogError."""
        segment = replace(segment, event_timestamp=self._host.clock.wall_ms())
        if not self._metadata.exists():
            # The metadata topic was deleted: write what is known of the tier again.
            for other in self._tiered.values():
                known = (*other.remote.readable, *other.remote.garbage)
                if known:
                    self._metadata.append(*known)
        self._metadata.append(segment)
        tiered.remote.apply(segment)


async def _ended(tasks: Sequence[Task[None]]) -> None:
    """Wait for cancelled tasks, and those of fetches whose connections were closed."""
    if tasks:
        await asyncio.wait(tasks)
    for _ in range(3):
        await asyncio.sleep(0)
