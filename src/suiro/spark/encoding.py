"""Encodes a task's Arrow columns to record batches per partition, without a Python object per record.

Columns are those of Spark's Kafka sink: `value` (binary or string), and if wanted `key`, `topic`, `partition`,
`headers`, and also `timestamp`. Rows with a key go where Kafka's own producers send that key (murmur2); rows without
go to one partition after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suiro.clock import Clock
from suiro.errors import UsageError
from suiro.protocol import columnar
from suiro.spark.options import SinkOptions
from suiro.spark.staging import Batch

COLUMNS = ("key", "value", "topic", "partition", "timestamp", "headers")
CHUNK_BYTES = 32 * 1024 * 1024
CHUNK_ROWS = 200_000


def check_columns(types: dict[str, str], *, has_topic: bool) -> None:
    """Of a DataFrame: name -> Spark's simple type name. Raises `UsageError` for what cannot be written."""
    allowed = {
        "key": ("binary", "string"),
        "value": ("binary", "string"),
        "topic": ("string",),
        "partition": ("int",),
        "timestamp": ("timestamp",),
        "headers": ("array<struct<key:string,value:binary>>",),
    }
    for name, kind in types.items():
        if name not in allowed:
            raise UsageError(
                f'format "suiro" writes the columns {", ".join(COLUMNS)}; column {name!r} is none of them: drop it or '
                "put it into value"
            )
        if kind not in allowed[name]:
            raise UsageError(f"column {name!r} is {kind}, not {' or '.join(allowed[name])}: cast it")
    if "value" not in types:
        raise UsageError('format "suiro" needs a column named value')
    if not has_topic and "topic" not in types:
        raise UsageError("no topic: give the option topic or a column named topic")


def encoded_rows(
    rows: Iterable[pa.RecordBatch],
    options: SinkOptions,
    *,
    partition_count: Callable[[str], int],
    task_index: int,
    clock: Clock,
) -> Iterator[Batch]:
    """Record batches in the order of the rows."""
    turn = task_index
    for chunk in _chunks(rows):
        for topic, part in _by_topic(chunk, options.topic):
            count = partition_count(topic)
            for batch in _encode(part, topic, count, turn % count, options, clock):
                yield topic, batch.partition, batch.data, batch.count
        turn += 1


def _chunks(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins small batches and bounds memory: a record batch is the better the more records it holds."""
    waiting: list[pa.RecordBatch] = []
    size = count = 0
    for batch in rows:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        size += batch.nbytes
        count += batch.num_rows
        if size >= CHUNK_BYTES or count >= CHUNK_ROWS:
            yield pa.concat_batches(waiting) if len(waiting) > 1 else waiting[0]
            waiting, size, count = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting) if len(waiting) > 1 else waiting[0]


def _by_topic(rows: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    if topic is not None:  # the option wins over the column, as in Spark's Kafka sink
        yield topic, rows
        return
    column = rows.column("topic")
    if column.null_count:
        raise UsageError("a row has a null in column topic and there is no option topic: where should it go?")
    names = pc.unique(column).to_pylist()
    if len(names) == 1:
        yield names[0], rows
        return
    for name in names:
        yield name, rows.filter(pc.equal(column, name))


def _encode(
    rows: pa.RecordBatch, topic: str, count: int, keyless: int, options: SinkOptions, clock: Clock
) -> list[Any]:
    names = rows.schema.names
    keys = _bytes(rows.column("key")) if "key" in names else pa.nulls(rows.num_rows, pa.binary())
    partitions = columnar.partitions_of(keys, count)
    if "partition" in names:
        partitions = _chosen(partitions, rows.column("partition"), topic, count)
    partitions = np.where(partitions < 0, np.int32(keyless), partitions)
    return columnar.encode(
        keys=keys,
        values=_bytes(rows.column("value")),
        timestamps=_timestamps(rows, clock),
        partitions=partitions,
        num_partitions=count,
        headers=rows.column("headers") if "headers" in names else None,
        compression=options.compression,
        max_batch_bytes=options.max_batch_bytes,
    )


def _chosen(partitions: np.ndarray, column: pa.Array, topic: str, count: int) -> np.ndarray:
    chosen = pc.fill_null(column, -1).to_numpy(zero_copy_only=False)
    given = ~pc.is_null(column).to_numpy(zero_copy_only=False)
    wrong = chosen[given & ((chosen < 0) | (chosen >= count))]
    if len(wrong):
        raise UsageError(f"column partition holds {int(wrong[0])}; topic {topic!r} has partitions 0 to {count - 1}")
    return np.where(given, chosen, partitions)


def _bytes(column: pa.Array) -> pa.Array:
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _timestamps(rows: pa.RecordBatch, clock: Clock) -> np.ndarray:
    now = clock.wall_ms()
    if "timestamp" not in rows.schema.names:
        return np.full(rows.num_rows, now, np.int64)
    if pa.types.is_integer(rows.schema.field("timestamp").type):  # of a topology: ms
        return np.asarray(rows.column("timestamp").to_numpy(zero_copy_only=False))
    micros = rows.column("timestamp").cast(pa.int64())
    # Floor, also before 1970.
    ms = np.floor_divide(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), 1000)
    return np.where(pc.is_null(micros).to_numpy(zero_copy_only=False), np.int64(now), ms)
