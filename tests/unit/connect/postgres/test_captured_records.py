"""Batches before the kernels are loaded and after: the same records in the same partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from suiro.client import TransactionalBatch
from suiro.connect.postgres.delivery import Delivery
from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.records import (
    HEADERS_TYPE,
    MAX_BATCH_BYTES,
    batch_of,
    encode,
    live_headers,
    snapshot_headers,
)
from suiro.errors import RefusedError, UsageError
from suiro.protocol import columnar
from suiro.protocol.crc32c import crc32c
from suiro.protocol.record_batch import HEADER_SIZE
from suiro.protocol.records import Record, decode_batch

ROWS = 40


def encoded(compiled: bool, partitions: int, *, value_size: int = 30) -> dict[int, list[Record]]:
    """The records of each partition, whatever batches they came in."""
    keys = pa.array([f"key-{row}".encode() for row in range(ROWS)], pa.binary())
    values = pa.array([None if row % 7 == 3 else bytes([row]) * value_size for row in range(ROWS)], pa.binary())
    row = np.arange(ROWS, dtype=np.int64)
    live = live_headers(row << 30, row % 3, row % 4, np.array([7, 4_000_000_000, 9]), np.array([1, 2, 3]) << 48)
    with engine.choose(compiled=compiled):
        batches = encode(
            "t",
            keys=keys,
            values=values,
            timestamps=np.arange(ROWS) * 1_000_003,
            headers=live,
            partitions=partitions,
            compression=0,
        )
    found: dict[int, list[Record]] = {}
    for batch in batches:
        records = decode_batch(batch.data)
        assert (batch.topic, batch.record_count) == ("t", len(records))
        assert len(batch.data) <= MAX_BATCH_BYTES or batch.record_count == 1
        assert batch.crc_tail == crc32c(memoryview(batch.data)[HEADER_SIZE:])
        found.setdefault(batch.partition, []).extend(
            Record(offset=0, timestamp=one.timestamp, key=one.key, value=one.value, headers=one.headers)
            for one in records
        )
    return found


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("value_size", [30, 100_000])
def test_plain_batches_hold_what_compiled_ones_hold(partitions: int, value_size: int) -> None:
    plain = encoded(False, partitions, value_size=value_size)
    assert sum(map(len, plain.values())) == ROWS
    assert len(plain) == partitions
    assert plain == encoded(True, partitions, value_size=value_size)


def test_headers_are_what_the_compiled_encoder_takes() -> None:
    assert columnar.HEADERS_TYPE == HEADERS_TYPE
    assert snapshot_headers(2, lsn=1, read_us=0).type == columnar.HEADERS_TYPE


def test_a_few_records_are_a_batch_of_their_partition() -> None:
    batch = batch_of("t", [(b"a", b"1"), (b"b", None)], partition=5, timestamp_ms=17)
    assert batch.partition == 5
    assert [(one.key, one.value, one.timestamp) for one in decode_batch(batch.data)] == [
        (b"a", b"1", 17),
        (b"b", None, 17),
    ]


def test_the_error_for_a_large_row_names_no_other_topic() -> None:
    """It told to set the limit of the topic with the largest batch, which may have a higher one."""

    def refuse(batches: Any) -> None:
        raise RefusedError("produce to small-0: too large", "MESSAGE_TOO_LARGE")

    delivery: Any = SimpleNamespace(_transactions=SimpleNamespace(produce=refuse))
    batches = [TransactionalBatch("small", 0, bytes(200), 1), TransactionalBatch("large", 0, bytes(300), 1)]
    with pytest.raises(UsageError, match=r"small-0.*max\.message\.bytes=600") as raised:
        Delivery._produce(delivery, batches)
    assert "--topic large" not in str(raised.value)
