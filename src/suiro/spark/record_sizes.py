"""Limits a micro-batch by bytes: samples how many bytes the records take that a micro-batch would read.

A sample is a few batches of each partition, from where the micro-batch begins and from its middle. One request asks for
all partitions, and further ones for those of which nothing is known yet and whose batches are large. The larger of both
sizes counts. It is the size of records without compression, as tasks hold them.

The process that plans loads neither Arrow nor kernels: a sample reads the headers of batches and decompresses them.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

from suiro.clock import Clock
from suiro.errors import CorruptRecordError, OffsetOutOfRangeError, SuiroError
from suiro.foundation.types import TopicPartition
from suiro.protocol.compression import decompressed_parts
from suiro.protocol.record_batch import HEADER_SIZE, iter_headers
from suiro.spark.offsets import least_of
from suiro.spark.waiting import SourceClient

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


@dataclass(frozen=True, slots=True)
class Sample:
    """`size`: bytes for each offset, 0 if that is not known. `time_ms`: the timestamp of the batch at `offset`."""

    size: float = 0
    offset: int = 0
    time_ms: int = 0


class RecordSizes:
    def __init__(self, client: SourceClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._sizes: dict[TopicPartition, float] = {}
        self._between: dict[TopicPartition, tuple[Sample, Sample]] = {}
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

    def best_share(
        self,
        max_bytes: int,
        begins: _Offsets,
        ends: _Offsets,
        shares: Sequence[Limited],
        max_offsets: int | None,
    ) -> tuple[Limited, int | None]:
        """The one of `shares` after which the fewest records wait, or the first of several; and its `count_within`."""
        counts: dict[Limited, int | None] = {}
        waiting: dict[Limited, float] = {}
        for share in shares:
            counts[share] = self.count_within(max_bytes, begins, ends, share, max_offsets)
            limit = least_of(counts[share], max_offsets)
            if limit is None:  # nothing is limited, as in most micro-batches
                return share, None
            waiting[share] = self._waiting(begins, ends, share(begins, ends, limit))
        best = min(shares, key=lambda share: waiting[share])
        return best, counts[best]

    def _waiting(self, begins: _Offsets, ends: _Offsets, chosen: _Offsets) -> float:
        """About how many of the offsets up to `chosen` wait for a partition that is not read to its end, where records
        are processed in the order of their timestamps. Infinite if the samples do not tell."""
        reached = {}
        for place, end in chosen.items():
            if place in self._between:
                first, middle = self._between[place]
                pace = (middle.offset - first.offset) / (middle.time_ms - first.time_ms)
                reached[place] = first.time_ms + (end - first.offset) / pace, pace
            elif end < ends[place]:
                return math.inf
        behind = (time_ms for place, (time_ms, _) in reached.items() if chosen[place] < ends[place])
        earliest = min(behind, default=math.inf)
        return sum(
            min(max(0, (time_ms - earliest) * pace), chosen[place] - begins[place])
            for place, (time_ms, pace) in reached.items()
        )

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
        self._between.clear()
        for place in lagging:
            samples = [sample[place] for sample in found if place in sample]
            if samples:
                self._sizes[place] = max(sample.size for sample in samples)
            if len(samples) == 2:
                begin, middle = samples
                if begin.offset < middle.offset and begin.time_ms < middle.time_ms:
                    self._between[place] = begin, middle

    def _found(self, offsets: _Offsets) -> dict[TopicPartition, Sample]:
        """A broker leaves out a partition whose first batch is larger than the limit, but never the first partition
        that has records. Such a one keeps the size that is known of it until it comes first."""
        found = self._asked(offsets, PARTITION_BYTES_MAX)
        while left := {place: at for place, at in offsets.items() if place not in found and place not in self._sizes}:
            more = self._asked(left, BATCH_BYTES_MAX)
            if not more:
                break
            found |= more
        return found

    def _asked(self, offsets: _Offsets, partition_max_bytes: int) -> dict[TopicPartition, Sample]:
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
        found = ((place, sample_of(one.data, offsets[place])) for place, one in fetched.items())
        return {place: sample for place, sample in found if sample.size}


def sample_of(data: Any, position: int) -> Sample:
    """Of the batches in `data`, the first of which has `position` in it or begins behind it."""
    size, first, end = 0, position, position
    time_ms = None
    try:
        for at, header in iter_headers(data):
            if header.next_offset <= position:
                continue
            first, end = min(first, header.base_offset), header.next_offset
            time_ms = header.max_timestamp if time_ms is None else time_ms
            if not header.is_control:
                size += _uncompressed(memoryview(data)[at + HEADER_SIZE : at + header.size], header.compression)
            if size >= ENOUGH_BYTES:
                break
    except CorruptRecordError as error:
        _log.debug("a sample cannot be read; the task that reads it says so: %s", error)
    return Sample(size / (end - first), first, time_ms or 0) if end > first else Sample()


def _uncompressed(records: memoryview, codec: int) -> int:
    """About how many bytes there are. Stops counting where a crafted batch would go on."""
    size = 0
    for part in decompressed_parts(codec, records):
        size += len(part)
        if size > FETCHED_BYTES_MAX:
            break
    return size
