"""Writes tombstones for keys that the table no longer has, if no change in the stream deleted them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from suiro.client import Client
from suiro.clock import SystemClock
from suiro.connect.postgres.delivery import Delivery, binary_column
from suiro.connect.postgres.encoding.headers import snapshot_headers
from suiro.connect.postgres.snapshot.topic_state import KeyedValues, Memory, load_older

logger = logging.getLogger(__name__)

CHUNK_KEYS = 50_000


class SnapshotTombstones:
    def __init__(self, delivery: Delivery, client: Client, *, directory: Path, memory_bytes: int) -> None:
        self._delivery = delivery
        self._client = client
        self._directory = directory
        self._memory_bytes = memory_bytes
        self._clock = SystemClock()

    def write_unseen_keys(self, topic: str, since: Mapping[str, int], *, lsn: int) -> None:
        """For keys that are alive and were last written before a snapshot began, which has seen all rows since."""
        self._delivery.flush()
        keys = KeyedValues(self._directory / "unseen.keys", memory=Memory(self._memory_bytes))
        try:
            offsets = {int(partition): end for partition, end in since.items()}
            load_older(keys, self._client, topic, self._delivery.partition_count(topic), offsets)
            portion: list[bytes] = []
            gone = 0
            for key in keys.all_keys():
                portion.append(key)
                gone += 1
                if len(portion) == CHUNK_KEYS:
                    self.write(topic, portion, lsn=lsn)
                    portion = []
            if portion:
                self.write(topic, portion, lsn=lsn)
            logger.info("topic %s: %d keys are gone from the table", topic, gone)
        finally:
            keys.close()

    def write(self, topic: str, keys: list[bytes], *, lsn: int) -> None:
        read_us = self._clock.wall_ms() * 1000
        self._delivery.add(
            topic,
            keys=binary_column(keys),
            values=pa.nulls(len(keys), pa.binary()),
            timestamps=np.full(len(keys), read_us // 1000, np.int64),
            headers=snapshot_headers(len(keys), lsn=lsn, read_us=read_us, operation="gone"),
        )
