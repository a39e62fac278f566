"""Limits a micro-batch by bytes: samples how many bytes the records take that a micro-batch would read.

A sample is a few batches of each partition, from where the micro-batch begins and from its middle. One request asks for
all partitions, and further ones for those of which nothing is known yet and whose batches are large. The larger of both
sizes counts. It is the size of records without compression, as tasks hold them.

The process that plans loads neither Arrow nor kernels: a sample reads the headers of batches and decompresses them.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping
from heapq import nlargest
from typing import Any, Protocol

from suiro.clock import Clock
from suiro.errors import CorruptRecordError, OffsetOutOfRangeError, SuiroError
from suiro.foundation.types import TopicPartition
from suiro.protocol.compression import decompressed_parts
from suiro.protocol.record_batch import HEADER_SIZE, iter_headers

COUNT_MIN = 100
"""Fewer records than this are read without a look at their sizes."""
MAX_AGE_MS = 1_000
PARTITIONS_MAX = 100
"""Of those with the most records. The others count as these do."""
FETCHED_BYTES_MAX = 8 * 1024 * 1024
PARTITION_BYTES_MAX = 64 * 1024
BATCH_BYTES_MAX = 1_100_000
"""A little more than the default of max.message.bytes."""
ENOUGH_BYTES = 256 * 1024
"""A sample ends with the batch that fills it."""

_log = logging.getLogger(__name__)
_Offsets = Mapping[TopicPartition, int]
Limited = Callable[[_Offsets, _Offsets, int], _Offsets]
"""(begins, ends, count) -> the ends of a micro-batch of about `count` offsets."""


class FetchingClient(Protocol):
    def fetch(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        read_committed: bool,
        max_bytes: int,
        partition_max_bytes: int,
        max_wait_ms: int,
    ) -> Mapping[TopicPartition, Any]: ...


class RecordSizes:
    def __init__(self, client: FetchingClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._sizes: dict[TopicPartition, float] = {}
        self._sampled_at_ms: int | None = None
        self._turn = 0

    def count_within(
        self, max_bytes: int, begins: _Offsets, ends: _Offsets, limited: Limited, max_offsets: int | None
    ) -> int | None:
        """How many offsets between `begins` and `ends` take about `max_bytes`, and at least one. None: all of them do
        not take more. `max_offsets`: about so many are read if sizes allow it."""
        count = sum(max(0, end - begins[place]) for place, end in ends.items())
        if count < COUNT_MIN:
            return None
        self._sample(begins, limited(begins, ends, count if max_offsets is None else min(count, max_offsets)))
        sizes = self._sizes
        if not sizes:
            return None
        usual = sum(sizes.values()) / len(sizes)

        def size(count: int) -> int:
            chosen = limited(begins, ends, count)
            return int(sum((end - begins[place]) * sizes.get(place, usual) for place, end in chosen.items()))

        fitting = bisect_right(range(1, count + 1), max_bytes, key=size)
        return None if fitting == count else max(1, fitting)

    def _sample(self, begins: _Offsets, ends: _Offsets) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._sampled_at_ms is not None and now_ms - self._sampled_at_ms < MAX_AGE_MS:
            return
        self._sampled_at_ms = now_ms
        lags = {place: end - begins[place] for place, end in ends.items() if end > begins[place]}
        lagging = nlargest(PARTITIONS_MAX, lags, key=lambda place: lags[place])
        # The first one of a request has an answer, however large its batches are.
        first = self._turn % max(1, len(lagging))
        lagging, self._turn = lagging[first:] + lagging[:first], self._turn + 1
        middles = {place: (begins[place] + ends[place]) // 2 for place in lagging}
        found = [self._found({place: begins[place] for place in lagging}), self._found(middles)]
        for place in lagging:
            sizes = [sample[place] for sample in found if place in sample]
            if sizes:
                self._sizes[place] = max(sizes)

    def _found(self, offsets: _Offsets) -> dict[TopicPartition, float]:
        """Bytes for each offset. A broker leaves out a partition whose first batch is larger than the limit, but never
        the first partition that has records. Such a one keeps the size that is known of it until it comes first."""
        found = self._asked(offsets, PARTITION_BYTES_MAX)
        while left := {
            place: at for place, at in offsets.items() if place not in found and place not in self._sizes
        }:
            more = self._asked(left, BATCH_BYTES_MAX)
            if not more:
                break
            found |= more
        return found

    def _asked(self, offsets: _Offsets, partition_max_bytes: int) -> dict[TopicPartition, float]:
        try:
            fetched = self._client.fetch(
                offsets,
                read_committed=False,
                max_wait_ms=0,
                max_bytes=FETCHED_BYTES_MAX,
                partition_max_bytes=partition_max_bytes,
            )
        except OffsetOutOfRangeError as error:
            place = error.topic, error.partition
            if error.log_start_offset <= offsets[place]:
                return {}
            # Retention was faster than the query. One partition must not keep the others from being sampled.
            return self._asked({**offsets, place: error.log_start_offset}, partition_max_bytes)
        except SuiroError as error:
            _log.debug("the records cannot be sampled, going on: %s", error)
            return {}
        found = ((place, bytes_per_offset(one.data, offsets[place])) for place, one in fetched.items())
        return {place: size for place, size in found if size}


def bytes_per_offset(data: Any, position: int) -> float:
    """Of the batches in `data`, the first of which has `position` in it or begins behind it. 0 if that is not known."""
    size, first, end = 0, position, position
    try:
        for at, header in iter_headers(data):
            if header.next_offset <= position:
                continue
            first, end = min(first, header.base_offset), header.next_offset
            if not header.is_control:
                size += _uncompressed(
                    memoryview(data)[at + HEADER_SIZE : at + header.size], header.compression
                )
            if size >= ENOUGH_BYTES:
                break
    except CorruptRecordError as error:
        _log.debug("a sample cannot be read; the task that reads it says so: %s", error)
    return size / (end - first) if end > first else 0


def _uncompressed(records: memoryview, codec: int) -> int:
    """About how many bytes there are. Stops counting where a crafted batch would go on."""
    size = 0
    for part in decompressed_parts(codec, records):
        size += len(part)
        if size > FETCHED_BYTES_MAX:
            break
    return size
