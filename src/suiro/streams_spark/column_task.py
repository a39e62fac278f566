"""Tasks whose sub-topology has columnar operators: they process whole columns instead of blocks of records.

Their state is the rules' own, so a task may go over to the rules and back: it does for a micro-batch whose data the
columns cannot do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES
from suiro.streams.topology.nodes import Source
from suiro.streams.vectorised.aggregate_twin import AggregateTwin
from suiro.streams.vectorised.stateless import FALLBACK
from suiro.streams.vectorised.stream_table_join import JoinTwin, LaneChunks
from suiro.streams_spark.condition import seen
from suiro.streams_spark.outputs import Topics
from suiro.streams_spark.program import Program
from suiro.streams_spark.rebuild import HeldFrom
from suiro.streams_spark.shuffle_message import Lane, ShuffleMessage
from suiro.streams_spark.state_log import TaskState
from suiro.streams_spark.stream_task import StreamTask

__all__ = ["ColumnTask"]

_NOW = b"\0current"


class ColumnTask(StreamTask):
    def __init__(
        self,
        program: Program,
        number: int,
        partition: int,
        state: TaskState,
        topics: Topics,
        twin: AggregateTwin | JoinTwin,
    ) -> None:
        super().__init__(program, number, partition, state, topics)
        self._twin = twin
        self._rows: Any = state.columns[twin.store]
        self._times = state.map(TIMES)
        self._lent: OrderedMap | None = None  # the rows, while the rules have them

    def take(self, messages: list[ShuffleMessage]) -> None:
        messages.sort(key=lambda item: (item.lane is None, item.lane or Lane("", 0), item.sequence))
        is_at_boundary = any(item.paused is not None for item in messages)
        is_behind = any(item.behind for item in messages)
        self._condition.see(seen(is_behind=is_behind, is_at_boundary=is_at_boundary, is_held=False))
        if isinstance(self._twin, AggregateTwin):
            self._aggregate(self._twin, messages)
        else:
            self._join(self._twin, messages)

    def end_task(self) -> None:
        if self._lent is None:
            return
        super().end_task()
        changes = self._lent.take_changes()
        del self._state.maps[self._twin.store]
        self._state.stores.pop(self._twin.store, None)
        self._rows.change(pa.array(list(changes), pa.binary()), pa.array(list(changes.values()), pa.binary()))

    @property
    def now(self) -> int:
        data = self._times.get(_NOW)
        return -1 if data is None else int.from_bytes(data, signed=True)

    def _aggregate(self, twin: AggregateTwin, messages: list[ShuffleMessage]) -> None:
        payloads = [self._prepared(twin, lane, columns) for lane, columns in self._take_held()]
        for item in messages:
            if item.columns is None or item.lane is None:
                continue
            if item.kind == "combined":
                payloads.append(item.columns)
            else:
                payloads.append(self._prepared(twin, item.lane, item.columns))
        for emission in twin.run(
            payloads,
            self._rows,
            self._times,
            partition=self._partition,
            failures=self.outputs,
            dropped=self._topics.dropped,
        ):
            self.outputs.emit_columns(emission)

    def _prepared(self, twin: AggregateTwin, lane: Lane, columns: pa.RecordBatch) -> pa.RecordBatch:
        is_raw = isinstance(twin.source.operator, Source)
        self._topics.note_rows({twin.source.name: columns.num_rows})
        return twin.prepare(
            columns,
            topic=lane.group,
            partition=lane.partition,
            reader=self._reader(twin.source) if is_raw else None,
            failures=self.outputs,
            dropped=self._topics.dropped,
        )

    def _take_held(self) -> list[tuple[Lane, pa.RecordBatch]]:
        """Records that the rules left waiting for others."""
        found = [(lane, columns) for lane, _, _, columns in self._held.all()]
        self._held.clear()
        return found

    def _join(self, twin: JoinTwin, messages: list[ShuffleMessage]) -> None:
        if any(item.paused is not None for item in messages):
            self._lend(messages)
            return
        lanes = [
            _Waiting(lane, input_, columns, behind)
            for (lane, input_), (columns, behind) in sorted(
                self._lanes(messages).items(), key=lambda entry: entry[0]
            )
        ]
        cut = _cut(lanes)
        chunks = [
            LaneChunks(input=lane.input, topic=lane.lane.group, columns=lane.first(count))
            for lane, count in zip(lanes, cut, strict=True)
        ]
        try:
            arrived = twin.arrive(chunks)
        except FALLBACK:
            self._lend(messages)
            return
        for emission in twin.run(
            arrived,
            self._rows,
            self._times,
            partition=self._partition,
            failures=self.outputs,
            dropped=self._topics.dropped,
        ):
            self.outputs.emit_columns(emission)
        self._held.clear()
        for lane, count in zip(lanes, cut, strict=True):
            self._topics.note_rows({lane.input: count})
            self._hold(lane, count)

    def _lend(self, messages: list[ShuffleMessage]) -> None:
        """The rules take this micro-batch."""
        store = self._twin.store
        keys, rows = self._rows.rows()
        self._lent = OrderedMap(zip(keys.to_pylist(), rows.to_pylist(), strict=True))
        self._state.maps[store] = self._lent
        self._state.stores.pop(store, None)
        super().take(messages)

    def _lanes(
        self, messages: list[ShuffleMessage]
    ) -> dict[tuple[Lane, str], tuple[list[pa.RecordBatch], bool]]:
        """By lane and input: what waited and what came, and whether there is more in the log."""
        found: dict[tuple[Lane, str], tuple[list[pa.RecordBatch], bool]] = {}
        for lane, input_, _, columns in self._held.all():
            found.setdefault((lane, input_), ([], False))[0].append(columns)
        for item in messages:
            if item.lane is not None:
                waited, behind = found.get((item.lane, item.input), ([], False))
                if item.columns is not None:
                    waited.append(item.columns)
                found[item.lane, item.input] = (waited, behind or item.behind)
        return found

    def _hold(self, lane: _Waiting, count: int) -> None:
        number = 0
        for columns in lane.after(count):
            if number == 0 and "offset" in columns.schema.names:
                offset, time = columns.column("offset")[0].as_py(), columns.column("timestamp")[0].as_py()
                self._waiting.append(HeldFrom(lane.lane.group, lane.lane.partition, offset, time))
            number = self._held.add(lane.lane, lane.input, number, columns)
            self._held_records[lane.input] += columns.num_rows
            self._condition.see("records wait for an input")


class _Waiting:
    """What one lane has for one input."""

    def __init__(self, lane: Lane, input_: str, columns: list[pa.RecordBatch], behind: bool) -> None:
        self.lane = lane
        self.input = input_
        self.behind = behind
        self._columns = columns
        stamps = [each.column("timestamp").to_numpy() for each in columns]
        whole = np.concatenate(stamps) if stamps else np.zeros(0, np.int64)
        self.reached = np.maximum.accumulate(whole) if len(whole) else whole
        """The latest timestamp up to each record: what the order of all lanes goes by."""

    def first(self, count: int) -> list[pa.RecordBatch]:
        found = []
        for each in self._columns:
            if count > 0:
                found.append(each.slice(0, count))
            count -= each.num_rows
        return found

    def after(self, count: int) -> list[pa.RecordBatch]:
        found = []
        for each in self._columns:
            if count < each.num_rows:
                found.append(each.slice(max(count, 0)))
            count -= each.num_rows
        return found


def _cut(lanes: list[_Waiting]) -> list[int]:
    """How many records of each lane may be taken now. Where a lane has more in the log, others wait once its last
    record here is taken."""
    if len(lanes) == 1 or not any(lane.behind for lane in lanes):
        return [len(lane.reached) for lane in lanes]
    behind = [(lane.reached, index) for index, lane in enumerate(lanes) if lane.behind]
    if any(len(reached) == 0 for reached, _ in behind):
        return [0] * len(lanes)
    time, last = min((int(reached[-1]), index) for reached, index in behind)
    return [
        int(np.searchsorted(lane.reached, time, side="right" if index <= last else "left"))
        for index, lane in enumerate(lanes)
    ]
