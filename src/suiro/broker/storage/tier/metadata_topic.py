"""`__remote_log_metadata`: the compacted topic that remembers what is in the remote tier.

One partition, one record a change of state, keyed by the segment (see `suiro.log.tier.segment_metadata`). It is
appended to on the event loop's thread; `sync` puts it on the disk before anything is done that relies on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from suiro.broker.storage import system_log
from suiro.broker.storage.topics import TIER_TOPIC, Partition, TopicRegistry
from suiro.broker.storage.workers import Workers, sync
from suiro.clock import Clock
from suiro.log import LogError
from suiro.log.tier import RemoteSegment, SegmentState, decode, encode

logger = logging.getLogger(__name__)

_CONFIGS = {"cleanup.policy": "compact", "remote.storage.enable": "false"}


class MetadataTopic:
    """The topic is created with the first append."""

    def __init__(self, topics: TopicRegistry, clock: Clock, workers: Workers) -> None:
        self._topics = topics
        self._clock = clock
        self._workers = workers

    def replay(self) -> Iterator[RemoteSegment]:
        """Every record, oldest first; a segment's last one counts."""
        partition = self._topics.partition(TIER_TOPIC, 0)
        if partition is None:
            return
        for header, records in system_log.replay(partition.log):
            for record in () if header.is_control else records:
                if record.value is None:
                    continue
                try:
                    yield decode(record.value)
                except LogError as error:
                    logger.error("%s at offset %d: %s", TIER_TOPIC, record.offset, error)

    def exists(self) -> bool:
        return TIER_TOPIC in self._topics

    def append(self, *segments: RemoteSegment) -> None:
        """Write new states, in one batch. Raises LogError."""
        records: list[tuple[bytes, bytes | None]] = []
        for segment in segments:
            records.append((segment.key, encode(segment)))
            if segment.state is SegmentState.DELETE_FINISHED:
                records.append((segment.key, None))
        system_log.append(self._partition(), records, timestamp=self._clock.wall_ms())

    async def sync(self) -> None:
        """Sync the appended records to the disk. Raises OSError."""
        await sync(self._partition().log, self._workers.run)

    def _partition(self) -> Partition:
        partition = self._topics.partition(TIER_TOPIC, 0)
        if partition is None:
            partition = self._topics.create(TIER_TOPIC, partitions=1, configs=_CONFIGS).partitions[0]
        return partition
