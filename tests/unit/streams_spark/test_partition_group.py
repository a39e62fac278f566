"""A task's queues by themselves: the order of their records, what waits, and what is kept of a block in parts."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from suiro.streams.records import Origin, Record
from suiro.streams.stores import OrderedMap
from suiro.streams_spark.buffered_records import BufferedRecords
from suiro.streams_spark.partition_group import PartitionGroup
from suiro.streams_spark.record_queue import RecordQueue
from suiro.streams_spark.record_readers import ReadColumns
from suiro.streams_spark.shuffle_message import InputPartition
from suiro.streams_spark.taking import Letters


class State:
    """What a task keeps, and queues over it."""

    def __init__(self) -> None:
        self.rows, self.notes = OrderedMap(), OrderedMap()
        self.buffered = BufferedRecords(self.rows)
        self.asked: list[int] = []

    def block(self, columns: pa.RecordBatch, *, takes_all: bool) -> ReadColumns | None:
        """None, as a reader whose source has an extractor."""
        return None

    def singly(self, columns: pa.RecordBatch) -> Iterator[ReadColumns | None]:
        for row in columns.to_pylist():
            offset, timestamp, key, value = (row[name] for name in ("offset", "timestamp", "key", "value"))
            if row.get("extracted") is None:
                self.asked.append(offset)
            if value is None:
                yield None
            else:
                yield ReadColumns.of_one(Record(key, value, timestamp), Origin("t", 0, offset, timestamp, ()))

    def queue(
        self,
        partition: int,
        times: list[int],
        *,
        start: int = 0,
        behind: bool = False,
        unreadable: Container[int] = (),
    ) -> RecordQueue:
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
                    "key": pa.array([b"%d" % partition] * count, pa.binary()),
                    "value": pa.array(
                        [None if start + row in unreadable else b"v" for row in range(count)], pa.binary()
                    ),
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


class BlockState(State):
    """Its reader reads blocks, where all of their records can be read."""

    def block(self, columns: pa.RecordBatch, *, takes_all: bool) -> ReadColumns | None:
        if "extracted" in columns.schema.names or columns.column("value").null_count:
            return None
        keys, values = columns.column("key").to_pylist(), columns.column("value").to_pylist()
        offsets, times = columns.column("offset").to_pylist(), columns.column("timestamp").to_pylist()
        self.blocks = getattr(self, "blocks", 0) + 1
        return ReadColumns(keys, values, times, None, None, lambda row: Origin("t", 0, offsets[row], times[row], ()))


micro_batches = st.lists(
    st.lists(st.tuples(st.lists(st.integers(0, 12), max_size=6), st.booleans()), min_size=3, max_size=3),
    min_size=1,
    max_size=4,
)


@given(batches=micro_batches, unreadable=st.sets(st.integers(0, 15), max_size=1), rows=st.integers(1, 4))
@example(
    [[([5, 3, 6], False), ([4, 5, 5], False), ([5], True)], [([5], False), ([], False), ([], False)]],
    set(),
    2,
)
def test_the_order_of_blocks_is_that_of_records(
    batches: list[list[tuple[list[int], bool]]], unreadable: set[int], rows: int
) -> None:
    """With input partitions that are behind, and records that cannot be read."""

    def taken_by(state: State) -> list[Any]:
        starts = [0, 0, 0]
        found = []
        for batch in batches:
            queues = [
                state.queue(index, times, start=starts[index], behind=behind, unreadable=unreadable)
                for index, (times, behind) in enumerate(batch)
            ]
            starts = [start + len(times) for start, (times, _) in zip(starts, batch, strict=True)]
            group = PartitionGroup(queues, state.notes)
            blocks = list(group.blocks(Letters()))
            assert all(len(block) <= rows for block in blocks)
            records = [
                (block.origin(row).offset, block.keys[row], time)
                for block in blocks
                for row, time in enumerate(block.timestamps)
            ]
            found.append((records, group.times(), group.close(), group.buffered_from, group.buffered))
        return found

    with (
        patch("suiro.streams_spark.record_readers.BLOCK_ROWS", rows),
        patch("suiro.streams_spark.record_queue.BLOCK_ROWS", rows),
        patch("suiro.streams_spark.taking.BLOCK_ROWS", rows),
    ):
        in_blocks = BlockState()
        assert taken_by(in_blocks) == taken_by(State())
    if not unreadable and any(times for times, _ in batches[0]):
        assert in_blocks.blocks
