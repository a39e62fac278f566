"""Reads records of topic partitions for one task: a source task, or a stream task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from suiro.clock import SystemClock
from suiro.spark import OffsetRange, ReadSettings, RetryingClient, Waiting, lease, read_columns
from suiro.streams_spark.program import Program
from suiro.streams_spark.record_spans import RecordTracer
from suiro.streams_spark.shuffle_message import InputPartition, Row, ShuffleMessage

EndsWithQuery = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""Calls the given function when the query ends."""


def range_columns(records: OffsetRange) -> pa.RecordBatch:
    """Returns what a message of kind "range" carries."""
    topic_id = pa.array([records.topic_id], pa.string())
    return pa.RecordBatch.from_pydict(
        {"start": pa.array([records.start]), "end": pa.array([records.end]), "topic_id": topic_id}
    )


class InputReader:
    """`waits_on`: whether a wait for the log goes on. `ends_with_query`: for a task that Spark does not end itself."""

    def __init__(
        self,
        program: Program,
        waits_on: Callable[[], bool],
        *,
        ends_with_query: EndsWithQuery = lambda give_up: nullcontext(),
    ) -> None:
        self._program = program
        self._waits_on = waits_on
        self._ends_with_query = ends_with_query
        self._clock = SystemClock()
        self._tracer = None if program.tracing is None else RecordTracer(program.tracing, self._clock)

    def read(self, records: OffsetRange, *, is_replayed: bool) -> Iterator[pa.RecordBatch]:
        """Yields the records as columns: key, value, offset, timestamp, and headers where there are any.

        Records that only rebuild state begin no spans.
        """
        bootstrap_servers, settings = self._program.connection
        source = self._program.source
        reading = ReadSettings(
            include_headers=True,
            fail_on_data_loss=source.fail_on_data_loss,
            max_fetch_bytes=source.max_fetch_bytes,
        )
        with lease(bootstrap_servers, settings) as client:
            waiting = Waiting(
                clock=self._clock,
                limit_ms=source.waiting_limit_ms,
                is_wanted=lambda: self._waits_on() and not client.is_abandoned,
            )
            with self._ends_with_query(client.abandon):
                chunks = read_columns(RetryingClient(client, waiting), records, reading, self._clock)
                if self._tracer is not None and not is_replayed:
                    chunks = self._tracer.traced(chunks, InputPartition(records.topic, records.partition))
                yield from map(_without_empty_headers, chunks)

    def read_ranges(self, messages: Iterable[ShuffleMessage]) -> Iterator[ShuffleMessage]:
        """Yields the messages, with records in place of their offsets."""
        # A shuffle keeps no order. Beyond `SPANS_MAX`, the same records must have spans whenever the task runs.
        for message in sorted(messages, key=lambda item: (item.input_partition or InputPartition("", 0), item.input)):
            if message.kind != "range":
                yield message
                continue
            assert message.input_partition is not None
            assert message.columns is not None
            (found,) = message.columns.to_pylist()
            place = message.input_partition
            records = OffsetRange(topic=place.group, partition=place.partition, **found)
            for sequence, columns in enumerate(self.read(records, is_replayed=message.replayed)):
                yield replace(message, kind="raw", sequence=sequence, columns=columns)

    def report(self) -> Iterator[Row]:
        """The report to the driver, if there is one."""
        if self._tracer is not None:
            yield from self._tracer.report()


def _without_empty_headers(columns: pa.RecordBatch) -> pa.RecordBatch:
    headers = columns.column("headers")
    if pc.sum(pc.list_value_length(headers)).as_py():
        return columns
    return columns.select(["key", "value", "offset", "timestamp"])
