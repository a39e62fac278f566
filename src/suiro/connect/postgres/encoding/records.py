"""Encodes captured records: their headers as columns, and record batches.

Headers are lsn, xid, commit_time, op and origin; docs/guides/capture.md says what they are. The compiled kernels make
headers and batches. Until they are loaded, and for batches of a few records, records are encoded one by one. Both ways
write records that read back the same, in the given order, and choose the partition of Kafka's default partitioner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suiro.client import TransactionalBatch
from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.pgoutput import Bytes, Int64s
from suiro.protocol.crc32c import crc32c
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.record_batch import HEADER_SIZE
from suiro.protocol.records import Record, encode_batch
from suiro.telemetry import TRACEPARENT

MAX_BATCH_BYTES = 900_000
ROW_BY_ROW_MAX = 8  # up to so many records are faster one by one
_OVERHEAD_BYTES = 150  # at most, for the headers and a record's own lengths

Pair = tuple[bytes, bytes | None]

OPERATIONS = ("insert", "update", "delete", "truncate")

# As `suiro.protocol.columnar` takes them, which is not imported here: it loads compiled kernels.
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_NAMES = (b"lsn", b"xid", b"commit_time", b"op", b"origin")
_LIVE = b"live"
_ORIGIN = np.frombuffer(_LIVE, np.uint8)
_OPERATION_NAMES = np.frombuffer("".join(OPERATIONS).encode(), np.uint8)
_OPERATION_PLACES = np.cumsum([0, *map(len, OPERATIONS)], dtype=np.int64)
_SIZE = 17 + 10 + 27 + 8 + len(_LIVE)
"""The largest size of a record's values: the LSN, the transaction, the time, the operation and the origin."""

_known_names: pa.Array | None = None


def live_headers(lsns: Int64s, transactions: Int64s, operations: Int64s, xids: Int64s, commit_us: Int64s) -> pa.Array:
    """For each record: its LSN, the index of its transaction in `xids` and `commit_us`, its place in OPERATIONS."""
    rows = len(lsns)
    compiled = engine.kernels()
    if compiled is not None:
        places = np.empty(rows * len(_NAMES) + 1, np.int32)
        out = np.empty(rows * _SIZE, np.uint8)
        size = compiled.live_header_values(
            lsns, transactions, operations, xids, commit_us,
            _OPERATION_NAMES, _OPERATION_PLACES, _ORIGIN, places, out,
        )  # fmt: skip
        if size >= 0:  # otherwise a year does not have four digits
            return _lists(rows, places, out[:size])
    names = [name.encode() for name in OPERATIONS]
    numbers, times = [b"%d" % xid for xid in xids.tolist()], _times(commit_us)
    cells: list[bytes] = []
    for lsn, of, operation in zip(lsns.tolist(), transactions.tolist(), operations.tolist(), strict=True):
        cells += (_lsn(lsn), numbers[of], times[of], names[operation], _LIVE)
    return _lists(rows, _offsets([len(cell) for cell in cells]), np.frombuffer(b"".join(cells), np.uint8))


def snapshot_headers(rows: int, *, lsn: int, read_us: int, operation: str = "read") -> pa.Array:
    """Returns the same headers for every record. `read_us`: since 1970."""
    (time,) = _times(np.array([read_us], np.int64))
    values = (_lsn(lsn), b"", time, operation.encode(), b"snapshot")
    offsets = _offsets(np.tile([len(value) for value in values], rows))
    return _lists(rows, offsets, np.tile(np.frombuffer(b"".join(values), np.uint8), rows))


def with_traces(headers: pa.Array, rows: Int64s, values: list[bytes]) -> pa.Array:
    """Adds the header `traceparent` behind the others to the records `rows`, which are in order."""
    flat = headers.values
    added = pa.StructArray.from_arrays(
        [pa.array([TRACEPARENT] * len(rows), pa.string()), pa.array(values, pa.binary())],
        fields=list(HEADERS_TYPE.value_type),
    )
    ends = (rows + 1) * len(_NAMES)
    order = np.insert(np.arange(len(flat)), ends, len(flat) + np.arange(len(rows)))
    counts = np.full(len(headers), len(_NAMES), np.int32)
    counts[rows] += 1
    return pa.ListArray.from_arrays(
        pa.array(_offsets(counts)), pa.concat_arrays([flat, added]).take(pa.array(order)), type=HEADERS_TYPE
    )


def _lsn(lsn: int) -> bytes:
    return b"%08X/%08X" % (lsn >> 32, lsn & 0xFFFFFFFF)


def _times(us: Int64s) -> list[bytes]:
    texts: list[bytes] = np.datetime_as_string(us.astype("datetime64[us]")).astype("S26").tolist()
    return [text + b"Z" for text in texts]


def _lists(rows: int, offsets: npt.NDArray[np.int32], data: Bytes) -> pa.Array:
    """`offsets`, `data`: the values of all headers, record by record."""
    count = len(_NAMES)
    values = pa.Array.from_buffers(pa.binary(), rows * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    structs = pa.StructArray.from_arrays([_names(rows), values], fields=list(HEADERS_TYPE.value_type))
    places = np.arange(0, rows * count + 1, count, dtype=np.int32)
    # Of buffers: `pa.array` would import pandas, seconds at a capture's start.
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [None, pa.py_buffer(places)], children=[structs])


def _names(rows: int) -> pa.Array:
    """Returns the names of the headers. They are the same in every record, so the longest column is cached."""
    global _known_names
    known = _known_names
    if known is None or len(known) < rows * len(_NAMES):
        sizes = np.tile([len(name) for name in _NAMES], rows)
        text = np.tile(np.frombuffer(b"".join(_NAMES), np.uint8), rows)
        buffers = [None, pa.py_buffer(_offsets(sizes)), pa.py_buffer(text)]
        known = _known_names = pa.Array.from_buffers(pa.string(), rows * len(_NAMES), buffers)
    return known.slice(0, rows * len(_NAMES))


def _offsets(sizes: npt.ArrayLike) -> npt.NDArray[np.int32]:
    return np.insert(np.cumsum(sizes, dtype=np.int32), 0, 0)


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
