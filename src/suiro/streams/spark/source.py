"""The topology's source in Spark: ranges of topic partitions in, rows of cargo out (`cargo`).

Planning is that of format "suiro", and a few things more: which partitions are behind, and the wall clock, stand in
the offsets that Spark writes down before a micro-batch runs. A task reads one or more ranges, one lane after another;
sub-topologies of level 0 run right here, and of their records only those for a repartition travel on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from suiro.clock import SystemClock
from suiro.spark import OffsetRange, Planner, Positions, ReadSettings, StageOfTask, lease, read_columns
from suiro.streams.nodes import Node, Repartition
from suiro.streams.records import Origin
from suiro.streams.sources import SourceReader
from suiro.streams.spark.cargo import SPARK_SCHEMA, Cargo, Lane, Row, headers_list, rows_batch
from suiro.streams.spark.outputs import Outputs, Topics
from suiro.streams.spark.plan import IN_SOURCE_TASKS, SubPlan, may_punctuate
from suiro.streams.spark.program import Program, load
from suiro.streams.spark.twins import twins_of
from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES, Task
from suiro.streams.vectorised.stateless import FALLBACK

__all__ = ["LaneRange", "TopologySource", "Work", "lane_rows"]

FORMAT = "suiro-topology"
RECORDS_PER_TASK_MIN = 20_000
"""Fewer are read by one task: a second one costs more than it saves."""


class TopologySource(DataSource):
    """`option("program", ...)` is all it takes."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SPARK_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TopologyReader(self.options["program"])


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRange:
    """What to read of one topic partition. `tells`: it is behind now or was before, so its bucket must hear of it.
    `paused`: see `cargo`; such a lane may have nothing to read, and only tells."""

    records: OffsetRange
    behind: bool = False
    tells: bool = False
    paused: int | None = None

    @property
    def lane(self) -> Lane:
        return Lane(self.records.topic, self.records.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One task's. `ticks`: it is also the one to send the clock to the buckets that wait for it. `muted`: only state
    is wanted."""

    lanes: tuple[LaneRange, ...]
    clock: int | None = None
    ticks: bool = False
    muted: bool = False


class WorkPartition(InputPartition):
    value: Work


class TopologyReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process of the driver for as long as the query runs; copies of it run the tasks."""

    def __init__(self, program: str) -> None:
        self._text = program
        self._client: Any = None
        self._plan: Planner | None = None
        self._initial: dict[str, Any] | None = None
        self._frozen: Positions | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"program": self._text}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["program"])  # type: ignore[misc]

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            self._initial = self._planner.initial().to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._program.source.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        positions = Positions.from_json(start)
        end = self._planner.latest(
            positions,
            max_offsets=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            frozen=self._frozen,
            unlimited=self._program.plan.global_inputs,
            boundary=None if self._program.boundary is None else self._program.boundary.offsets,
        )
        clock = self._clock(positions)
        is_new = end.offsets != positions.offsets or positions.initial
        if not is_new and (clock is None or clock == positions.clock):
            return start  # the very same value tells Spark that there is nothing new
        return replace(end, clock=clock).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = self._planner.latest(Positions(offsets={}))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = Positions.from_json(start), Positions.from_json(end)
        boundary = self._program.boundary
        paused = {} if boundary is None else boundary.paused(after)
        told = after.behind | before.behind | paused.keys()
        lanes = [
            LaneRange(
                records=item, behind=place in after.behind, tells=place in told, paused=paused.get(place)
            )
            for item in self._planner.ranges(before, after)
            for place in [(item.topic, item.partition)]
        ]
        read = {(item.lane.group, item.lane.partition) for item in lanes}
        for topic, partition in sorted(paused.keys() - read):
            at = after.offsets[topic, partition]
            nothing = OffsetRange(topic=topic, partition=partition, start=at, end=at)
            lanes.append(LaneRange(records=nothing, tells=True, paused=paused[topic, partition]))
        shares = shared_out(lanes, after.clock, self._program.parallelism)
        return [WorkPartition(replace(share, muted=after.muted)) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        work = partition.value
        if work is not None:
            for rows in work_rows(self._program, work):
                if rows:
                    yield rows_batch(rows)

    def commit(self, end: dict[str, Any]) -> None:
        """Offsets are committed in the transaction of the micro-batch."""

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = self._plan = None

    def _clock(self, before: Positions) -> int | None:
        every = self._program.clock_ms
        if every is None:
            return None
        now = SystemClock().wall_ms()
        return now if before.clock is None or now >= before.clock + every else before.clock

    @property
    def _program(self) -> Program:
        return load(self._text)

    @property
    def _planner(self) -> Planner:
        if self._plan is None:
            from suiro.client import Client

            options = self._program.source
            self._client = Client(options.bootstrap_servers, settings=options.client_settings)
            self._plan = Planner(self._client, options, clock=SystemClock(), pause=Event().wait)
        return self._plan


def shared_out(lanes: Sequence[LaneRange], clock: int | None, parallelism: int) -> list[Work]:
    """Ranges to tasks, so that all have about the same number of records; few records are one task's."""
    total = sum(item.records.end - item.records.start for item in lanes)
    count = max(1, min(parallelism, len(lanes), -(-total // RECORDS_PER_TASK_MIN)))
    shares: list[list[LaneRange]] = [[] for _ in range(count)]
    sizes = [0] * count
    for item in sorted(lanes, key=lambda item: item.records.start - item.records.end):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(item)
        sizes[smallest] += item.records.end - item.records.start
    return [
        Work(lanes=tuple(share), clock=clock, ticks=index == 0 and clock is not None)
        for index, share in enumerate(shares)
        if share or clock is not None
    ]


def work_rows(program: Program, work: Work) -> Iterator[list[Row]]:
    bootstrap_servers, settings = program.connection
    reading = ReadSettings(
        include_headers=True,
        fail_on_data_loss=program.source.fail_on_data_loss,
        max_fetch_bytes=program.source.max_fetch_bytes,
    )
    with StageOfTask(program.sink) as stage:
        topics = Topics(stage)
        if work.muted:
            topics.mute(program.plan.changelogs)
        if work.ticks:
            yield list(_clock_ticks(program, work.clock, muted=work.muted))
        for item in work.lanes:
            if item.records.start == item.records.end:
                yield from lane_rows(program, item, (), topics, work.clock)
                continue
            with lease(bootstrap_servers, settings) as client:
                chunks = read_columns(client, item.records, reading, SystemClock())
                yield from lane_rows(program, item, chunks, topics, work.clock)
        yield list(topics.finish())


def lane_rows(
    program: Program,
    item: LaneRange,
    chunks: Iterable[pa.RecordBatch],
    topics: Topics,
    clock: int | None = None,
) -> Iterator[list[Row]]:
    """The records of one lane, as columns, to cargo and staged records: all that a source task does."""
    lane = item.lane
    plan = program.plan
    inputs = plan.inputs.get(lane.group, [])
    tables = plan.global_inputs.get(lane.group, [])
    here = [_Here(program, sub, node, lane, topics) for sub, node in inputs if sub.level == IN_SOURCE_TASKS]
    away = [
        (sub, node, _Combiner(program, sub, node, lane, topics))
        for sub, node in inputs
        if sub.level != IN_SOURCE_TASKS
    ]
    for sequence, columns in enumerate(chunks):
        columns = _without_empty_headers(columns)
        cargo = Cargo(
            kind="raw",
            lane=lane,
            sequence=sequence,
            behind=item.behind,
            clock=clock,
            muted=topics.is_muted,
            paused=item.paused,
            columns=columns,
        )
        rows: list[Row] = []
        for sub, node in tables:
            data = replace(cargo, input=node.name, behind=False, paused=None).pack()
            rows += [(sub.number, bucket, data) for bucket in range(sub.buckets)]
        for sub, node, combiner in away:
            rows.append((sub.number, lane.partition, combiner.of(replace(cargo, input=node.name)).pack()))
        for task in here:
            rows += task.feed(columns)
        yield rows
    rows = []
    if item.tells:
        tick = Cargo(
            kind="tick",
            lane=lane,
            sequence=1 << 30,
            behind=item.behind,
            clock=clock,
            muted=topics.is_muted,
            paused=item.paused,
        )
        rows += [(sub.number, lane.partition, replace(tick, input=node.name).pack()) for sub, node, _ in away]
    for task in here:
        rows += task.finish(item)
    yield rows


class _Here:
    """A sub-topology without state, run in the source task for one lane."""

    def __init__(self, program: Program, sub: SubPlan, node: Node, lane: Lane, topics: Topics) -> None:
        self._lane = lane
        self._topics = topics
        self._input = node.name
        twins = twins_of(program.run, program.plan.topology, program.settings)
        found = twins.of(sub.number)
        self._twin = found if found is not None and found.kind == "stateless" else None
        self._outputs = Outputs(program.plan, topics, lane, twins=twins)
        sub_topology = program.plan.topology.sub_topologies[sub.number]
        self._cuts = tuple(item for item in sub_topology.outputs if isinstance(item.operator, Repartition))
        self._task = Task(
            program.plan.topology,
            sub_topology,
            partition=lane.partition,
            maps={TIMES: OrderedMap()},
            outputs=self._outputs,
            settings=program.settings,
        )
        self._reader = SourceReader(
            node,
            on_deserialization_error=program.on_deserialization_error,
            drop=topics.drop,
            dead_letter=self._outputs.bury,
        )

    def feed(self, columns: pa.RecordBatch) -> Iterator[Row]:
        if self._twin is not None:
            try:
                found = self._twin.run(self._input, columns, topic=self._lane.group)
            except FALLBACK:
                pass
            else:
                for emission in found:
                    self._outputs.emit_columns(emission)
                return self._outputs.ready_rows()
        topic, partition = self._lane.group, self._lane.partition
        read, process, input_ = self._reader.read, self._task.process, self._input
        for offset, timestamp, key, value, headers in zip(
            columns.column("offset").to_pylist(),
            columns.column("timestamp").to_pylist(),
            columns.column("key").to_pylist(),
            columns.column("value").to_pylist(),
            headers_list(columns) or repeat(()),
            strict=False,
        ):
            record = read(topic, partition, offset, timestamp, key, value, headers)
            if record is not None:
                process(input_, record, Origin(topic, partition, offset, timestamp, headers))
        return self._outputs.ready_rows()

    def finish(self, item: LaneRange) -> Iterator[Row]:
        self._task.end_of_batch()
        self._task.close()
        for reason, count in self._task.dropped.items():
            self._topics.drop(reason, count)
        paused = item.paused is not None
        return self._outputs.finish(self._cuts, behind=item.behind, paused=paused, tells=item.tells)


class _Combiner:
    """What a bucket's twin on columns wants to have done before the shuffle."""

    def __init__(self, program: Program, sub: SubPlan, node: Node, lane: Lane, topics: Topics) -> None:
        found = twins_of(program.run, program.plan.topology, program.settings).of(sub.number)
        self._twin = found if found is not None and found.kind == "aggregate" else None
        self._lane = lane
        self._topics = topics
        self._failures = Outputs(program.plan, topics, lane)
        self._reader = SourceReader(
            node,
            on_deserialization_error=program.on_deserialization_error,
            drop=topics.drop,
            dead_letter=self._failures.bury,
        )

    def of(self, cargo: Cargo) -> Cargo:
        if self._twin is None or cargo.columns is None:
            return cargo
        payload = self._twin.prepare(
            cargo.columns,
            topic=self._lane.group,
            partition=self._lane.partition,
            reader=self._reader,
            failures=self._failures,
            dropped=self._topics.dropped,
        )
        return replace(cargo, kind="combined", columns=payload)


def _clock_ticks(program: Program, clock: int | None, *, muted: bool) -> Iterator[Row]:
    tick = Cargo(kind="tick", lane=None, clock=clock, muted=muted).pack()
    for sub in program.plan.topology.sub_topologies:
        if may_punctuate([sub]):
            for bucket in range(program.plan.subs[sub.number].buckets):
                yield sub.number, bucket, tick


def _without_empty_headers(columns: pa.RecordBatch) -> pa.RecordBatch:
    headers = columns.column("headers")
    if pc.sum(pc.list_value_length(headers)).as_py():
        return columns
    return columns.select(["key", "value", "offset", "timestamp"])
