"""Tasks whose sub-topology has columnar operators: they process whole columns instead of blocks of records.

The state has the same format as that of the rules. So a task runs a micro-batch by the rules if its columns cannot hold
the data, and goes back to columns afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from suiro.streams.stores import OrderedMap
from suiro.streams.stores import Row as HeldRow
from suiro.streams.task import TIMES
from suiro.streams.times import number_at
from suiro.streams.vectorised.by_rules import ColumnContext
from suiro.streams.vectorised.columnar_aggregate import ColumnarAggregate
from suiro.streams.vectorised.stateless import FALLBACK
from suiro.streams.vectorised.stream_table_join import Arrived, ColumnarJoin, InputChunks
from suiro.streams.vectorised.table import TableRows
from suiro.streams_spark.condition import Condition, condition_after
from suiro.streams_spark.outputs import Topics
from suiro.streams_spark.partition_group import may_be_taken
from suiro.streams_spark.program import Program
from suiro.streams_spark.rebuild import BufferedFrom
from suiro.streams_spark.shuffle_message import InputPartition, Row, ShuffleMessage, by_input_partition
from suiro.streams_spark.state_log import TaskState, pieces_of
from suiro.streams_spark.stream_task import StreamTask

ROWS_PER_RECORD = 64
"""Where a table has more rows than this for each record of a micro-batch, the rules read single rows of it. That takes
about so many times as long as a row of the whole table."""

_NOW = b"\0current"


class ColumnTask(StreamTask):
    def __init__(
        self,
        program: Program,
        number: int,
        partition: int,
        state: TaskState,
        topics: Topics,
        columnar: ColumnarAggregate | ColumnarJoin,
    ) -> None:
        super().__init__(program, number, partition, state, topics)
        self._columnar = columnar
        self._rows: Any = state.columns[columnar.store]
        self._times = state.map(TIMES)
        self._context = ColumnContext(partition, self.outputs.dead_letter, topics.dropped)
        self._lent: OrderedMap | None = None  # the rows, while the rules have them

    def take(self, messages: list[ShuffleMessage]) -> Iterator[Row]:
        self._condition = condition_after(
            is_behind=any(item.behind for item in messages),
            is_at_boundary=any(item.paused is not None for item in messages),
            is_buffered=False,
        )
        if isinstance(self._columnar, ColumnarAggregate):
            self._aggregate(self._columnar, messages)
        else:
            yield from self._join(self._columnar, messages)

    def end_task(self) -> None:
        if self._lent is None:
            return
        super().end_task()
        changes = self._lent.take_changes()
        del self._state.maps[self._columnar.store]
        self._state.stores.pop(self._columnar.store, None)
        for keys, rows in pieces_of(changes):
            self._rows.change(keys, rows)

    @property
    def now(self) -> int:
        return number_at(self._times, _NOW)

    def _aggregate(self, columnar: ColumnarAggregate, messages: list[ShuffleMessage]) -> None:
        payloads = [
            self._prepared(columnar, input_partition, columns) for input_partition, columns in self._take_buffered()
        ]
        for input_partition, item in by_input_partition(messages):
            if item.kind == "combined":
                payloads.append(item.columns)
            elif item.columns is not None:
                payloads.append(self._prepared(columnar, input_partition, item.columns))
        for _, letter in self._letters.take(0):
            self.outputs.send(letter)
        for emission in columnar.run(payloads, self._rows, self._times, self._context):
            self.outputs.emit_columns(emission)

    def _prepared(
        self, columnar: ColumnarAggregate, input_partition: InputPartition, columns: pa.RecordBatch
    ) -> pa.RecordBatch:
        reader = self._record_reader(columnar.source, input_partition)
        return self.outputs.combined(columnar, columns, input_partition, reader)

    def _take_buffered(self) -> list[tuple[InputPartition, pa.RecordBatch]]:
        """Takes the records that wait for other inputs since a micro-batch that the rules ran."""
        found = [(input_partition, columns) for input_partition, _, _, columns in self._buffered.all()]
        self._buffered.clear()
        return found

    def _join(self, columnar: ColumnarJoin, messages: list[ShuffleMessage]) -> Iterator[Row]:
        if any(item.paused is not None for item in messages):
            yield from self._lend(messages)
            return
        waiting = self._in_order(messages)
        cut = may_be_taken(
            [one.reached for one in waiting],
            # A task of one input partition waits for nothing.
            [index for index, one in enumerate(waiting) if one.behind and len(waiting) > 1],
        )
        parts = [one.parted(count) for one, count in zip(waiting, cut, strict=True)]
        chunks = [
            InputChunks(input=one.input, topic=one.input_partition.group, columns=first)
            for one, (first, _) in zip(waiting, parts, strict=True)
        ]
        try:
            arrived = Arrived(columnar, chunks)
        except FALLBACK:
            yield from self._lend(messages)
            return
        for emission in columnar.run(arrived, self._rows, self._times, self._context):
            self.outputs.emit_columns(emission)
            yield from self.outputs.ready_rows()
        self._buffered.clear()
        for one, count, (_, others) in zip(waiting, cut, parts, strict=True):
            self._topics.note_rows({one.input: count})
            self._hold(one, others)

    def _lend(self, messages: list[ShuffleMessage]) -> Iterator[Row]:
        """Runs this micro-batch by the rules, on the table's rows as an ordered map."""
        store = self._columnar.store
        records = sum(item.columns.num_rows for item in messages if item.columns is not None)
        self._lent = _LentRows(self._rows, copies=len(self._rows) <= ROWS_PER_RECORD * records)
        self._state.maps[store] = self._lent
        self._state.stores.pop(store, None)
        yield from super().take(messages)

    def _in_order(self, messages: list[ShuffleMessage]) -> list[_Waiting]:
        """Returns the records that waited and that came, in the order in which ties are settled."""
        found: dict[tuple[InputPartition, str], _Waiting] = {}

        def of(input_partition: InputPartition, input_: str) -> _Waiting:
            return found.setdefault((input_partition, input_), _Waiting(input_partition, input_))

        for input_partition, input_, _, columns in self._buffered.all():
            of(input_partition, input_).columns.append(columns)
        for input_partition, item in by_input_partition(messages):
            one = of(input_partition, item.input)
            one.behind |= item.behind
            if item.columns is not None:
                one.columns.append(item.columns)
        return [found[key] for key in sorted(found, key=self._order)]

    def _hold(self, one: _Waiting, others: list[pa.RecordBatch]) -> None:
        number = 0
        for columns in others:
            if number == 0 and "offset" in columns.schema.names:
                offset, time = (columns.column(name)[0].as_py() for name in ("offset", "timestamp"))
                place = one.input_partition
                self._waiting.append(BufferedFrom(place.group, place.partition, offset, time))
            number = self._buffered.add(one.input_partition, one.input, number, columns)
            self._buffered_records[one.input] += columns.num_rows
            self._condition = Condition.IDLING


class _LentRows(OrderedMap):
    """A table's rows for the rules, which ask for single keys only. `copies`: has all rows at once; otherwise it reads
    a row when it is first asked for."""

    def __init__(self, rows: TableRows, *, copies: bool) -> None:
        super().__init__()
        self._columns = None if copies else rows
        if copies:
            self.restore(zip(*(column.to_pylist() for column in rows.rows()), strict=True))

    def get(self, key: bytes) -> bytes | None:
        self._read_row(key)
        return super().get(key)

    def held(self, key: bytes) -> bytes | HeldRow | None:
        self._read_row(key)
        return super().held(key)

    def _read_row(self, key: bytes) -> None:
        if self._columns is None or key in self._rows or key in self._changes:
            return
        row = self._columns.row(key)
        if row is not None:
            self._rows[key] = row


@dataclass(slots=True)
class _Waiting:
    """The records that one input partition has for one input. `behind`: there are more in the log."""

    input_partition: InputPartition
    input: str
    columns: list[pa.RecordBatch] = field(default_factory=list)
    behind: bool = False

    @property
    def reached(self) -> np.ndarray:
        """The latest timestamp up to each record, which decides the order of all input partitions."""
        stamps = [np.zeros(0, np.int64), *(each.column("timestamp").to_numpy() for each in self.columns)]
        return np.maximum.accumulate(np.concatenate(stamps))

    def parted(self, count: int) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """The first `count` records, and the others."""
        first, others = [], []
        for each in self.columns:
            if count > 0:
                first.append(each.slice(0, count))
            if count < each.num_rows:
                others.append(each.slice(max(count, 0)))
            count -= each.num_rows
        return first, others
