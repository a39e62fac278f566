"""A task's queues by themselves: the order of their records, what waits, and what is kept of a block in parts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from suiro.streams.records import Origin, Record
from suiro.streams.stores import OrderedMap
from suiro.streams_spark.buffered_records import BufferedRecords
from suiro.streams_spark.partition_group import PartitionGroup
from suiro.streams_spark.record_queue import RecordQueue
from suiro.streams_spark.record_readers import Read
from suiro.streams_spark.shuffle_message import InputPartition
from suiro.streams_spark.taking import Letters


class State:
    """What a task keeps, and queues over it."""

    def __init__(self) -> None:
        self.rows, self.notes = OrderedMap(), OrderedMap()
        self.buffered = BufferedRecords(self.rows)
        self.asked: list[int] = []

    def block(self, columns: pa.RecordBatch, *, takes_all: bool) -> None:
        """As a reader whose source has an extractor."""

    def one(self, item: Any) -> Read | None:
        offset, timestamp, key, value, headers, extracted = item
        if extracted is None:
            self.asked.append(offset)
        if value is None:
            return None
        return Record(key, value, timestamp), Origin("t", 0, offset, timestamp, headers), -1

    def queue(self, partition: int, times: list[int], *, start: int = 0, behind: bool = False) -> RecordQueue:
        input_partition = InputPartition("t", partition)
        found = RecordQueue(input_partition, "in", self, self.buffered, self.notes, False)
        for buffered_input, _, number, columns in self.buffered.all():
            if buffered_input == input_partition:
                found.add_buffered(number, columns)
        count = len(times)
        found.add(
            pa.RecordBatch.from_pydict(
                {
                    "offset": pa.array(range(start, start + count), pa.int64()),
                    "timestamp": pa.array(times, pa.int64()),
                    "key": pa.array([b"k"] * count, pa.binary()),
                    "value": pa.array([b"v"] * count, pa.binary()),
                }
            )
        )
        found.behind = behind
        return found

    def taken(self, *queues: RecordQueue) -> tuple[list[int], list[tuple[InputPartition, int, int]]]:
        group = PartitionGroup(queues, self.notes)
        found = [time for block in group.blocks(Letters()) for time in block.timestamps]
        assert group.close() == bool(group.buffered_from)
        return found, group.buffered_from


def test_the_earliest_head_comes_first_and_ties_go_by_partition() -> None:
    state = State()
    queues = state.queue(0, [5, 1, 9]), state.queue(1, [5, 6])
    group = PartitionGroup(queues, state.notes)
    found = [
        (block.origin(row).offset, time)
        for block in group.blocks(Letters())
        for row, time in enumerate(block.timestamps)
    ]
    assert found == [(0, 5), (1, 1), (0, 5), (1, 6), (2, 9)]
    assert not group.close()
    assert list(state.rows.range()) == []


def test_what_waits_is_taken_in_parts_and_read_once() -> None:
    state = State()
    found, buffered = state.taken(state.queue(0, [1, 3, 5, 7]), state.queue(1, [2], behind=True))
    assert (found, buffered) == ([1, 2], [(InputPartition("t", 0), 1, 3)])
    found, buffered = state.taken(state.queue(0, [9], start=4), state.queue(1, [4], start=1, behind=True))
    assert (found, buffered) == ([3, 4], [(InputPartition("t", 0), 2, 5)])
    assert len(list(state.rows.range())) == 2
    found, buffered = state.taken(state.queue(0, []), state.queue(1, []))
    assert (found, buffered) == ([5, 7, 9], [])
    assert list(state.rows.range()) == []
    assert sorted(state.asked) == [
        0,
        0,
        1,
        1,
        2,
        3,
        4,
    ]  # a record that was looked at is not asked for its time again


def test_all_wait_for_a_input_partition_that_is_behind_and_has_nothing() -> None:
    state = State()
    found, buffered = state.taken(state.queue(0, [1, 2]), state.queue(1, [], behind=True))
    assert (found, buffered) == ([], [(InputPartition("t", 0), 0, 1)])
