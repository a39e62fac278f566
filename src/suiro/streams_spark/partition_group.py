"""The record queues of a task, and the order in which it takes records from them: that of Kafka Streams.

The earliest head comes first, ties by topic and partition. Where an input partition has more records in the log than
this micro-batch reads, the others wait for it, so that any cut of the log into micro-batches gives one order. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from suiro.streams.blocks import Taken
from suiro.streams.stores import OrderedMap
from suiro.streams.times import UNKNOWN, numbers_of
from suiro.streams_spark.buffered_records import queue_of_prefix
from suiro.streams_spark.notes import REACHED
from suiro.streams_spark.record_queue import RecordQueue
from suiro.streams_spark.shuffle_message import InputPartition
from suiro.streams_spark.taking import Letters, TakenRow, taken, together


class PartitionGroup:
    """`queues`: in the order in which ties are settled. Used once: `blocks`, `times`, `close`."""

    def __init__(self, queues: Sequence[RecordQueue], notes: OrderedMap) -> None:
        self._queues = queues
        self._notes = notes

    def blocks(self, letters: Letters) -> Iterator[Taken]:
        """All that may be taken now. `letters`: where readers put dead letters."""
        if len(self._queues) == 1:
            yield from self._queues[0].blocks(letters)
            return
        if all(queue.paused is None for queue in self._queues) and (yield from self._merged()):
            return
        yield from taken(self._records(), letters)

    def _merged(self) -> Generator[Taken, None, bool]:
        """The order of `_records`, where whole blocks can be read. False: what is left must go record by record.

        A record goes by the latest timestamp up to it in its queue: what is behind it there waits for it.
        """
        while all(queue.fill() for queue in self._queues):
            if any(queue.behind and not queue.has_head for queue in self._queues):
                return True
            queues = [queue for queue in self._queues if queue.has_head]
            if not queues:
                return True
            counts = may_be_taken(
                [queue.reached_in_hand for queue in queues],
                [index for index, queue in enumerate(queues) if queue.has_more],
            )
            yield from together([queue.take(count) for queue, count in zip(queues, counts, strict=True) if count])
        return False

    def _records(self) -> Iterator[TakenRow]:
        heap: list[tuple[int, int, RecordQueue]] = []
        is_complete = is_open = True
        for index, queue in enumerate(self._queues):
            if queue.advance():
                heap.append((queue.timestamp, index, queue))
            elif queue.behind:
                is_complete = False
            elif queue.stops_carried:
                is_open = False
        if not is_complete:
            return
        heapq.heapify(heap)
        while heap:
            _, index, queue = heap[0]
            if not is_open and queue.is_carried:
                heapq.heappop(heap)
                continue
            yield queue.input, *queue.taken()
            if queue.advance():
                heapq.heapreplace(heap, (queue.timestamp, index, queue))
            else:
                heapq.heappop(heap)
                if queue.behind:
                    return
                is_open = is_open and not queue.stops_carried

    def times(self) -> dict[str, int]:
        """The time that each input has reached by the ticks of its input partitions, limited by every input partition
        that has more records in the log. Call it when `blocks` is exhausted."""
        limit = min((q.reached for q in self._queues if q.behind or q.paused is not None or q.has_head), default=None)
        found: dict[str, int] = {}
        for queue in self._queues:
            time = queue.tick if limit is None else min(queue.tick, limit)
            found[queue.input] = max(time, found.get(queue.input, UNKNOWN))
        here = {(queue.input_partition, queue.input) for queue in self._queues}
        for name, reached in numbers_of(self._notes, REACHED):
            # An input partition that sends no tick now is at its end. The time that it told before still holds.
            input_partition, input_ = queue_of_prefix(name)
            if (input_partition, input_) not in here:
                time = reached if limit is None else min(reached, limit)
                found[input_] = max(time, found.get(input_, UNKNOWN))
        return found

    def close(self) -> bool:
        """Keeps the records that are left. Returns whether there are any."""
        is_buffered = False
        for queue in self._queues:
            is_buffered |= queue.close()
        return is_buffered

    @property
    def buffered_from(self) -> list[tuple[InputPartition, int, int]]:
        """Input partitions of topics whose records wait: offset and time of the first one."""
        return [
            (queue.input_partition, *queue.buffered_from) for queue in self._queues if queue.buffered_from is not None
        ]

    @property
    def buffered(self) -> dict[str, int]:
        """Records that wait, by input. Asked for when the group is closed."""
        found: dict[str, int] = {}
        for queue in self._queues:
            if queue.left:
                found[queue.input] = found.get(queue.input, 0) + queue.left
        return found

    @property
    def is_behind(self) -> bool:
        return any(queue.behind for queue in self._queues)

    @property
    def is_paused(self) -> bool:
        """An input partition stands at the rebuild's boundary, and had more records there."""
        return any(queue.paused is not None for queue in self._queues)


def may_be_taken(reached: Sequence[NDArray[np.int64]], waited_for: Sequence[int]) -> list[int]:
    """How many records of each queue come next, by the latest timestamp up to each record in its queue. The others wait
    for the queues `waited_for` once the last record of one is taken. Ties go by place."""
    if any(len(reached[index]) == 0 for index in waited_for):
        return [0] * len(reached)
    if not waited_for:
        return [len(each) for each in reached]
    time, last = min((int(reached[index][-1]), index) for index in waited_for)
    return [
        int(np.searchsorted(each, time, side="right" if index <= last else "left"))
        for index, each in enumerate(reached)
    ]
