"""Writes tombstones for keys that the table no longer has, if no change in the stream deleted them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from suiro.clock import SystemClock
from suiro.connect.postgres.encoding.headers import snapshot_headers
from suiro.connect.postgres.resources import Resources
from suiro.connect.postgres.snapshot.topic_state import KeyedValues, Memory, load_older

logger = logging.getLogger(__name__)


class SnapshotTombstones:
    def __init__(self, resources: Resources) -> None:
        self._delivery = resources.delivery
        self._client = resources.client
        self._directory = resources.directory
        self._memory_bytes = resources.options.memory_bytes
        self._clock = SystemClock()

    def write_unseen_keys(self, topic: str, since: Mapping[str, int], *, lsn: int) -> None:
        """Writes tombstones for keys that have a value and were last written before the snapshot began: the snapshot
        has written all rows of the table since."""
        self._delivery.flush()
        keys = KeyedValues(self._directory / "unseen.keys", memory=Memory(self._memory_bytes))
        try:
            offsets = {int(partition): end for partition, end in since.items()}
            load_older(keys, self._client, topic, self._delivery.partition_count(topic), offsets)
            gone = 0
            for portion in keys.portions():
                gone += len(portion)
                self.write(topic, portion, lsn=lsn)
            logger.info("topic %s: %d keys are gone from the table", topic, gone)
        finally:
            keys.close()

    def write(self, topic: str, keys: list[bytes], *, lsn: int) -> None:
        read_ms = self._clock.wall_ms()
        headers = snapshot_headers(len(keys), lsn=lsn, read_us=read_ms * 1000, operation="gone")
        self._delivery.add_tombstones(topic, keys, timestamp_ms=read_ms, headers=headers)
