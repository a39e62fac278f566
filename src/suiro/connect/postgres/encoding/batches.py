"""Encodes records to record batches: with the compiled kernels, or one by one for a few and until they are loaded.

Both ways write records that read back the same, in the given order, and choose the partition of Kafka's default
partitioner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from suiro.client import TransactionalBatch
from suiro.connect.postgres.encoding import engine
from suiro.protocol.crc32c import crc32c
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.record_batch import HEADER_SIZE
from suiro.protocol.records import Record, encode_batch

MAX_BATCH_BYTES = 900_000
ROW_BY_ROW_MAX = 8  # up to so many records are faster one by one
_OVERHEAD_BYTES = 150  # at most, for the headers that `headers` makes and a record's own lengths

Pair = tuple[bytes, bytes | None]


def encode(
    topic: str,
    *,
    keys: pa.Array,
    values: pa.Array,
    timestamps: Any,
    headers: pa.Array,
    partitions: int,
    compression: int,
) -> list[TransactionalBatch]:
    """`partitions`: the number of partitions of the topic. No key is null."""
    columnar = engine.columnar()
    if columnar is None or len(keys) <= ROW_BY_ROW_MAX:
        return [
            _finished(topic, partition, records, compression)
            for partition, records in _plain(keys, values, timestamps, headers, partitions)
        ]
    places = columnar.partitions_of(keys, partitions) if partitions > 1 else np.zeros(len(keys), np.int32)
    found = columnar.encode(
        keys=keys,
        values=values,
        timestamps=timestamps,
        partitions=places,
        num_partitions=partitions,
        headers=headers,
        compression=compression,
        max_batch_bytes=MAX_BATCH_BYTES,
    )
    return [TransactionalBatch(topic, one.partition, one.data, one.count, one.crc_tail) for one in found]


def batch_of(topic: str, pairs: Iterable[Pair], *, partition: int, timestamp_ms: int) -> TransactionalBatch:
    """Encodes a few records without headers, such as a position. Below a hundred records this is the faster way."""
    records = [Record(offset=at, timestamp=timestamp_ms, key=key, value=value) for at, (key, value) in enumerate(pairs)]
    return _finished(topic, partition, records)


def _plain(
    keys: pa.Array, values: pa.Array, timestamps: Any, headers: pa.Array, partitions: int
) -> Iterator[tuple[int, list[Record]]]:
    """Yields the records of each batch, and its partition."""
    waiting: dict[int, list[Record]] = {}
    sizes: dict[int, int] = {}
    rows = zip(keys.to_pylist(), values.to_pylist(), timestamps.tolist(), headers.to_pylist(), strict=True)
    for key, value, timestamp, pairs in rows:
        partition = partition_for_key(key, partitions) if partitions > 1 else 0
        size = _OVERHEAD_BYTES + len(key) + len(value or b"")
        records = waiting.setdefault(partition, [])
        if records and sizes[partition] + size > MAX_BATCH_BYTES:
            yield partition, records
            records = waiting[partition] = []
        sizes[partition] = size + (sizes[partition] if records else 0)
        records.append(
            Record(
                offset=len(records),
                timestamp=timestamp,
                key=key,
                value=value,
                headers=tuple((pair["key"], pair["value"]) for pair in pairs),
            )
        )
    yield from sorted(waiting.items())


def _finished(topic: str, partition: int, records: list[Record], compression: int = 0) -> TransactionalBatch:
    data = encode_batch(records, compression=compression)
    return TransactionalBatch(topic, partition, data, len(records), crc32c(memoryview(data)[HEADER_SIZE:]))
