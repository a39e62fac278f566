"""The records of one partition for one input of a task: buffered records first, then those of this micro-batch.

Pure: records are columns that `buffered_records` keeps between micro-batches; `record_readers` makes records of their
rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from suiro.streams.blocks import Taken
from suiro.streams.stores import OrderedMap
from suiro.streams.times import UNKNOWN, keep_number, number_at
from suiro.streams_spark.buffered_records import BYTES_MAX, BufferedRecords, buffered_prefix
from suiro.streams_spark.notes import REACHED, TICK
from suiro.streams_spark.record_readers import (
    BLOCK_ROWS,
    ReadColumns,
    ReadRow,
    RecordReader,
    blocks_of,
    reads,
)
from suiro.streams_spark.shuffle_message import InputPartition
from suiro.streams_spark.taking import Letters, Part, all_taken

_NOTHING: NDArray[np.int64] = np.zeros(0, np.int64)


class RecordQueue:
    """Ends with `close`, which keeps what was not taken."""

    def __init__(
        self,
        input_partition: InputPartition,
        input_: str,
        reader: RecordReader,
        buffered: BufferedRecords,
        notes: OrderedMap,
        is_carried: bool,
    ) -> None:
        self.input_partition = input_partition
        self.input = input_
        self.behind = False
        self.paused: int | None = None
        self.is_carried = is_carried
        self.buffered_from: tuple[int, int] | None = None
        """Offset and time of a topic's first record that stays, once it is closed."""
        self.left = 0
        """Records that stay, once it is closed."""
        self.timestamp = 0
        """The time of the head."""
        self._reader = reader
        self._buffered = buffered
        self._notes = notes
        self._tick_key = TICK + buffered_prefix(input_partition, input_)
        self._reached_key = REACHED + buffered_prefix(input_partition, input_)
        self._reached = number_at(notes, self._reached_key)
        self.tick = max(self._reached, number_at(notes, self._tick_key))
        # What comes next, and the number that it is buffered under. What has been taken is let go at once.
        self._blocks: deque[tuple[int | None, pa.RecordBatch]] = deque()
        self._row = 0  # of the first block
        self._taken_numbers: list[int] = []
        self._following = 0
        self._walking: Iterator[ReadRow | None] | None = None
        self._head: ReadRow | None = None
        # Rows that were read together, and the place of the next one.
        self._in_hand: ReadColumns | None = None
        self._place = 0
        self.reached_in_hand: NDArray[np.int64] = _NOTHING
        """The latest timestamp up to each of the rows that `fill` has read."""

    def add_buffered(self, number: int, columns: pa.RecordBatch) -> None:
        """Adds records that waited, in order, before new ones."""
        self._blocks.append((number, columns))
        self._following = number + 1

    def add_all(self, columns: Sequence[pa.RecordBatch]) -> None:
        """Adds new records, in order."""
        for each in _in_blocks(columns):
            self.add(each)

    def add(self, columns: pa.RecordBatch) -> None:
        if "time" in columns.schema.names:
            # The input partition had come further before this micro-batch than its first records say.
            times = np.maximum(columns.column("time").to_numpy(), self._reached)
            columns = columns.set_column(columns.schema.get_field_index("time"), "time", pa.array(times))
        if columns.num_rows:
            self._blocks.append((None, columns))

    def blocks(self, letters: Letters) -> Iterator[Taken]:
        """All records, in blocks, for a task without another input partition."""
        while self._blocks:
            yield from all_taken(self._reader, self.input, self._blocks[0][1], letters)
            self._pop()

    def fill(self) -> bool:
        """Reads the next rows, if no rows read before are left. False: they must be read one by one, with `advance`."""
        while self._in_hand is None and self._blocks:
            columns = self._blocks[0][1]
            if self._row == columns.num_rows:
                self._pop()
                continue
            self._in_hand = self._reader.block(next(blocks_of(columns.slice(self._row))), takes_all=False)
            if self._in_hand is None:
                return False
            self._place = 0
            self.reached_in_hand = np.maximum.accumulate(np.array(self._in_hand.times, np.int64))
            self._see(self._in_hand, 0)
        return True

    def take(self, count: int) -> Part:
        """Takes `count` of the rows that `fill` has read. Followed by `fill`."""
        found, start = self._in_hand, self._place
        assert found is not None
        reached, self.reached_in_hand = self.reached_in_hand[:count], self.reached_in_hand[count:]
        self._row += count
        self._place += count
        if len(self.reached_in_hand):
            self._see(found, self._place)
        else:
            self._in_hand = None
        return Part(self.input, found, start, reached)

    @property
    def has_more(self) -> bool:
        """Whether there are more records than `fill` has read, here or in the log."""
        if self.behind or len(self._blocks) > 1:
            return True
        last = self._row + len(self.reached_in_hand)
        return last < int(self._blocks[0][1].num_rows)

    def advance(self) -> bool:
        """Moves the head on to the next record; False where there is none."""
        if self._walking is None:
            self._in_hand = None
            self._walking = self._walk()
        for found in self._walking:
            if found is not None:
                self._head = found
                self._see(*found)
                return True
        self._head = None
        return False

    def _see(self, columns: ReadColumns, row: int) -> None:
        time = columns.times[row]
        assert time is not None
        self.timestamp = time

    def taken(self) -> ReadRow:
        """The head. Followed by `advance`."""
        head = self._head
        assert head is not None
        self._head = None
        return head

    @property
    def has_head(self) -> bool:
        return self._head is not None or self._in_hand is not None

    @property
    def reached(self) -> int:
        """Records that are still to come carry this time or a later one."""
        if self.has_head:
            return self.timestamp
        return self.tick if self.paused is None else max(self.tick, self.paused)

    @property
    def stops_carried(self) -> bool:
        """Whether it has no more records up to the boundary, where carried ones waited for it."""
        return self.paused == UNKNOWN

    def close(self) -> bool:
        """Keeps the records that are left for the next micro-batch. Returns whether there are any."""
        is_buffered = self._keep()
        if self.tick > self._reached:
            keep_number(self._notes, self._reached_key, self.tick)
        if self.tick > UNKNOWN and is_buffered:
            keep_number(self._notes, self._tick_key, self.tick)
        elif self._notes.get(self._tick_key) is not None:
            self._notes.put(self._tick_key, None)
        return is_buffered

    def _keep(self) -> bool:
        for taken in self._taken_numbers:
            self._buffered.remove(self.input_partition, self.input, taken)
        following = self._following
        for index, (number, columns) in enumerate(self._blocks):
            if index == 0:
                left = self._left(columns)
                self.buffered_from = _first_of(left)
                if number is not None and left is not columns:
                    self._buffered.put(self.input_partition, self.input, number, left)
                columns = left
            self.left += columns.num_rows
            if number is None:
                following = self._buffered.add(self.input_partition, self.input, following, columns)
        return bool(self._blocks)

    def _left(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """The rest of the current block. It keeps the time of its head, so that the extractor is called once."""
        if self._row:
            columns = columns.slice(self._row)
        if self._head is None or "offset" not in columns.schema.names:
            return columns
        if "extracted" in columns.schema.names and columns.column("extracted")[0].is_valid:
            return columns
        return with_extracted(columns, self.timestamp)

    def _walk(self) -> Iterator[ReadRow | None]:
        while self._blocks:
            columns = self._blocks[0][1].slice(self._row)
            for self._row, found in enumerate(reads(self._reader, columns), self._row):  # noqa: B020 — the place in hand
                yield found
            self._pop()

    def _pop(self) -> None:
        number, _ = self._blocks.popleft()
        self._row = 0
        if number is not None:
            self._taken_numbers.append(number)


def _in_blocks(columns: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins small batches: many input partitions may send a few records each."""
    some: list[pa.RecordBatch] = []
    rows = size = 0
    for each in columns:
        rows, size = rows + each.num_rows, size + each.nbytes
        is_alike = not some or each.schema.equals(some[0].schema, check_metadata=True)
        if some and not (is_alike and rows <= BLOCK_ROWS and size <= BYTES_MAX):
            yield _one_of(some)
            some, rows, size = [], each.num_rows, each.nbytes
        some.append(each)
    if some:
        yield _one_of(some)


def _one_of(some: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return some[0] if len(some) == 1 else pa.concat_batches(some)


def with_extracted(columns: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Adds the time that the extractor gave for the first record."""
    times = pa.concat_arrays([pa.array([first], pa.int64()), pa.nulls(columns.num_rows - 1, pa.int64())])
    index = columns.schema.get_field_index("extracted")
    return columns.append_column("extracted", times) if index < 0 else columns.set_column(index, "extracted", times)


def _first_of(columns: pa.RecordBatch) -> tuple[int, int] | None:
    if "offset" not in columns.schema.names:
        return None
    extracted = columns.column("extracted")[0].as_py() if "extracted" in columns.schema.names else None
    time = columns.column("timestamp")[0].as_py() if extracted is None else extracted
    return columns.column("offset")[0].as_py(), time
