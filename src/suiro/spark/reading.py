"""Reads the offset range of one task, and returns Arrow record batches in the schema of the source.

Bytes are fetched and decoded one step ahead of what Spark takes, in a second thread. No Python object per record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suiro.clock import Clock
from suiro.errors import (
    CorruptRecordError,
    DataLossError,
    DeadlineExceededError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from suiro.protocol import columnar
from suiro.protocol.record_batch import iter_headers
from suiro.spark.planning import OffsetRange
from suiro.spark.waiting import SourceClient

FETCH_WAIT_MS = 500
STALLED_AFTER_MS = 120_000
FETCH_BYTES_MAX = 1 << 30

_log = logging.getLogger(__name__)

_HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
ARROW_SCHEMA_WITH_HEADERS = ARROW_SCHEMA.append(pa.field("headers", _HEADERS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    include_headers: bool = False
    read_committed: bool = True
    fail_on_data_loss: bool = True
    max_fetch_bytes: int = 8 * 1024 * 1024
    rows_per_batch: int = 50_000


def read_range(
    client: SourceClient, wanted: OffsetRange, settings: ReadSettings, clock: Clock
) -> Iterator[pa.RecordBatch]:
    """Every committed record of the range, in order. Raises `DataLossError` where offsets are gone."""
    for rows in _read_ahead(_StepInSchema(client, wanted, settings, clock), wanted):
        for start in range(0, rows.num_rows, settings.rows_per_batch):
            yield rows.slice(start, settings.rows_per_batch)


def read_columns(
    client: SourceClient, wanted: OffsetRange, settings: ReadSettings, clock: Clock
) -> Iterator[pa.RecordBatch]:
    """The same as the log has them: key, value, offset, timestamp (ms), and headers when asked for. One batch for
    each answer of the broker."""
    for rows in _read_ahead(_Step(client, wanted, settings, clock), wanted):
        if rows.num_rows:
            yield rows


def _read_ahead(step: _Step, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    rows, position = step(wanted.start)
    if position >= wanted.end:
        yield rows
        return
    ahead = ThreadPoolExecutor(max_workers=1, thread_name_prefix="suiro-fetch")
    try:
        future: Future[tuple[pa.RecordBatch, int]] | None = ahead.submit(step, position)
        while True:
            yield rows
            if future is None:
                return
            rows, position = future.result()
            future = ahead.submit(step, position) if position < wanted.end else None
    finally:
        ahead.shutdown(wait=True, cancel_futures=True)


class _Step:
    """Fetches and decodes once: position in, (rows, next position) out."""

    def __init__(self, client: SourceClient, wanted: OffsetRange, settings: ReadSettings, clock: Clock):
        self._client = client
        self._wanted = wanted
        self._settings = settings
        self._clock = clock
        self._fetch_bytes = settings.max_fetch_bytes
        self._topic_ids = None if wanted.topic_id is None else {wanted.topic: UUID(hex=wanted.topic_id)}

    def __call__(self, position: int) -> tuple[pa.RecordBatch, int]:
        deadline = self._clock.monotonic_ms() + STALLED_AFTER_MS
        while True:
            fetched, position = self._fetch(position)
            if position >= self._wanted.end:
                return self._empty(), position
            decoded = self._decoded(fetched, position)
            if decoded.next_offset > position:
                return self._shaped(decoded.batch, fetched.data), decoded.next_offset
            if len(fetched.data) and self._fetch_bytes < FETCH_BYTES_MAX:
                self._fetch_bytes *= 2  # a batch larger than what was asked for
            if self._clock.monotonic_ms() > deadline:
                raise DeadlineExceededError(
                    f"{self._name} gave nothing from offset {position} on for {STALLED_AFTER_MS} ms, although "
                    f"offsets up to {self._wanted.end} were committed when this was planned"
                )

    def _decoded(self, fetched: Any, position: int) -> columnar.DecodedRange:
        try:
            return columnar.decode(
                fetched.data,
                start_offset=position,
                end_offset=self._wanted.end,
                aborted=fetched.aborted,
                read_committed=self._settings.read_committed,
                headers=self._settings.include_headers,
            )
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{self._name} is damaged: {error}") from error

    def _fetch(self, position: int) -> tuple[Any, int]:
        place = self._wanted.place
        while True:
            try:
                found = self._client.fetch(
                    {place: position},
                    read_committed=self._settings.read_committed,
                    max_bytes=self._fetch_bytes,
                    partition_max_bytes=self._fetch_bytes,
                    max_wait_ms=FETCH_WAIT_MS,
                    topic_ids=self._topic_ids,
                )
                return found[place], position
            except (OffsetOutOfRangeError, UnknownTopicError) as error:
                position = self._after_loss(error, position)
                if position >= self._wanted.end:
                    return None, position

    def _after_loss(self, error: OffsetOutOfRangeError | UnknownTopicError, position: int) -> int:
        if self._settings.fail_on_data_loss:
            raise DataLossError(
                f"data was lost while it was read: {error}. Set failOnDataLoss to false to go on with what exists"
            ) from error
        end = self._wanted.end
        begins = error.log_start_offset if isinstance(error, OffsetOutOfRangeError) else end
        lost_until = min(begins, end) if begins > position else end
        _log.warning("data was lost, going on: %s holds no offsets %d to %d", self._name, position, lost_until)
        return lost_until

    def _shaped(self, rows: pa.RecordBatch, data: Any) -> pa.RecordBatch:
        return rows

    def _empty(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=pa.schema([]))

    @property
    def _name(self) -> str:
        return f"{self._wanted.topic}-{self._wanted.partition}"


class _StepInSchema(_Step):
    """Gives the rows in the source's schema."""

    def _shaped(self, rows: pa.RecordBatch, data: Any) -> pa.RecordBatch:
        count = rows.num_rows
        if count == 0:
            return self._empty()
        offsets = rows.column("offset")
        micros = pc.multiply(rows.column("timestamp"), 1000).cast(pa.timestamp("us", tz="UTC"))
        columns = [
            rows.column("key"),
            rows.column("value"),
            _repeated(self._wanted.topic, count),
            _repeated(self._wanted.partition, count),
            offsets,
            micros,
            _timestamp_types(data, offsets),
        ]
        if self._settings.include_headers:
            columns.append(_headers(rows.column("headers")))
            return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA_WITH_HEADERS)
        return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)

    def _empty(self) -> pa.RecordBatch:
        schema = ARROW_SCHEMA_WITH_HEADERS if self._settings.include_headers else ARROW_SCHEMA
        return pa.RecordBatch.from_pylist([], schema=schema)


def _repeated(value: str | int, count: int) -> pa.Array:
    return _column_of(value, 1 << max(10, (count - 1).bit_length())).slice(0, count)


@cache
def _column_of(value: str | int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string() if isinstance(value, str) else pa.int32()), count)


def _timestamp_types(data: Any, offsets: pa.Array) -> pa.Array:
    """0 create time, 1 log append time: a flag of each record batch, nearly always the same for all."""
    firsts: list[int] = []
    types: list[int] = []
    for _, header in iter_headers(data):
        kind = 1 if header.is_log_append_time else 0
        if not types or types[-1] != kind:
            firsts.append(header.base_offset)
            types.append(kind)
    count = len(offsets)
    if len(types) == 1:
        return _repeated(types[0], count)
    index = np.searchsorted(np.array(firsts, np.int64), offsets.to_numpy(), side="right") - 1
    return pa.array(np.array(types, np.int32)[index])


def _headers(column: pa.Array) -> pa.Array:
    """In Spark's type, and null where a record has no headers, as in Spark's Kafka connector."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    values = column.flatten().cast(_HEADERS.value_type)
    ends = np.cumsum(lengths.to_numpy(zero_copy_only=False), dtype=np.int32)
    edges = pa.array(np.concatenate([np.zeros(1, np.int32), ends]))
    return pa.ListArray.from_arrays(edges, values, type=_HEADERS, mask=pc.equal(lengths, 0))
