"""Buckets whose sub-topology has a twin on columns: what `bucket` does record by record, for whole columns.

Their state is the rules' own, so a bucket may go over to the rules and back: it does for a micro-batch whose data the
columns cannot do, and while a lane must wait for another one.
"""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa

from suiro.streams.nodes import Source
from suiro.streams.spark.bucket import Bucket, held_parts
from suiro.streams.spark.cargo import Cargo, Lane, headers_array
from suiro.streams.spark.outputs import Topics
from suiro.streams.spark.program import Program
from suiro.streams.spark.state_log import BucketState
from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES
from suiro.streams.vectorised.aggregate_twin import AggregateTwin
from suiro.streams.vectorised.stateless import FALLBACK
from suiro.streams.vectorised.stream_table_join import JoinTwin, LaneChunks

__all__ = ["ColumnBucket"]

_NOW = b"\0current"


class ColumnBucket(Bucket):
    def __init__(
        self,
        program: Program,
        number: int,
        bucket: int,
        state: BucketState,
        topics: Topics,
        twin: AggregateTwin | JoinTwin,
    ) -> None:
        super().__init__(program, number, bucket, state, topics)
        self._twin = twin
        self._rows: Any = state.columns[twin.store]
        self._times = state.map(TIMES)
        self._lent: OrderedMap | None = None  # the rows, while the rules have them

    def take(self, cargo: list[Cargo]) -> None:
        cargo.sort(key=lambda item: (item.lane is None, item.lane or Lane("", 0), item.sequence))
        self._behind = any(item.behind or item.paused for item in cargo)
        if isinstance(self._twin, AggregateTwin):
            self._aggregate(self._twin, cargo)
        else:
            self._join(self._twin, cargo)

    def end_task(self) -> None:
        if self._lent is None:
            return
        super().end_task()
        changes = self._lent.take_changes()
        del self._state.maps[self._twin.store]
        self._rows.change(pa.array(list(changes), pa.binary()), pa.array(list(changes.values()), pa.binary()))

    @property
    def now(self) -> int:
        data = self._times.get(_NOW)
        return -1 if data is None else int.from_bytes(data, signed=True)

    def _aggregate(self, twin: AggregateTwin, cargo: list[Cargo]) -> None:
        payloads = [self._prepared(twin, lane, columns) for lane, columns in self._take_held()]
        for item in cargo:
            if item.columns is None or item.lane is None:
                continue
            if item.kind == "combined":
                payloads.append(item.columns)
            else:
                payloads.append(self._prepared(twin, item.lane, item.columns))
        for emission in twin.run(
            payloads, self._rows, self._times, partition=self._bucket, failures=self.outputs
        ):
            self.outputs.emit_columns(emission)

    def _prepared(self, twin: AggregateTwin, lane: Lane, columns: pa.RecordBatch) -> pa.RecordBatch:
        is_raw = isinstance(twin.source.operator, Source)
        return twin.prepare(
            columns,
            topic=lane.group,
            partition=lane.partition,
            reader=self._reader(twin.source) if is_raw else None,
            failures=self.outputs,
        )

    def _take_held(self) -> list[tuple[Lane, pa.RecordBatch]]:
        """Records that the rules left waiting for others."""
        lanes: dict[Lane, list[Any]] = {}
        for key, data in self._held.range():
            group, partition, _, _ = held_parts(key)
            lanes.setdefault(Lane(group, partition), []).append(pickle.loads(data))
            self._held.put(key, None)
        return [(lane, _columns_of(items)) for lane, items in lanes.items()]

    def _join(self, twin: JoinTwin, cargo: list[Cargo]) -> None:
        if not self._behind and not len(self._held):
            lanes: dict[tuple[Lane, str], list[pa.RecordBatch]] = {}
            for item in cargo:
                if item.lane is not None and item.columns is not None:
                    lanes.setdefault((item.lane, item.input), []).append(item.columns)
            chunks = [
                LaneChunks(input=input_, topic=lane.group, columns=columns)
                for (lane, input_), columns in sorted(lanes.items(), key=lambda entry: entry[0])
            ]
            try:
                arrived = twin.arrive(chunks)
            except FALLBACK:
                pass
            else:
                for emission in twin.run(
                    arrived, self._rows, self._times, partition=self._bucket, failures=self.outputs
                ):
                    self.outputs.emit_columns(emission)
                return
        keys, rows = self._rows.rows()
        self._lent = OrderedMap(zip(keys.to_pylist(), rows.to_pylist(), strict=True))
        self._state.maps[twin.store] = self._lent
        super().take(cargo)


def _columns_of(items: list[Any]) -> pa.RecordBatch:
    """Items of a queue in `bucket` as the columns they were."""
    if len(items[0]) == 6:
        offsets, timestamps, keys, values, headers, _ = zip(*items, strict=True)
        first = {"offset": pa.array(offsets, pa.int64())}
    else:
        timestamps, times, keys, values, headers = zip(*items, strict=True)
        first = {"time": pa.array(times, pa.int64())}
    columns = {
        **first,
        "timestamp": pa.array(timestamps, pa.int64()),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
    }
    if any(headers):
        columns["headers"] = headers_array(list(headers))
    return pa.RecordBatch.from_pydict(columns)
