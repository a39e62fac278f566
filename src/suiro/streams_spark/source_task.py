"""The source task: goes through its input partitions one after another and produces rows with messages.

Sub-topologies of level 0 run right here; of their records only those for a repartition travel on. A task with state
reads its records itself, unless its columnar form combines them here: it gets their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pyarrow as pa

from suiro.spark import StageOfTask, given_up_when_stopped
from suiro.streams.blocks import BlockTask
from suiro.streams.call_loop import Calls
from suiro.streams.calls import Caller
from suiro.streams.sources import SourceReader
from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES
from suiro.streams.topology.nodes import Node, Repartition
from suiro.streams.topology.topology import SubTopology
from suiro.streams.vectorised.columnar_aggregate import ColumnarAggregate
from suiro.streams.vectorised.stateless import FALLBACK
from suiro.streams_spark.columnar_forms import columnar_forms_of
from suiro.streams_spark.condition import condition_after
from suiro.streams_spark.input_reader import EndsWithQuery, InputReader, range_columns
from suiro.streams_spark.outputs import Outputs, Topics
from suiro.streams_spark.plan import IN_SOURCE_TASKS, SubPlan, may_punctuate
from suiro.streams_spark.program import Program
from suiro.streams_spark.record_readers import TopicReader
from suiro.streams_spark.shuffle_message import InputPartition, InputRange, Row, ShuffleMessage, Work
from suiro.streams_spark.taking import Letters, all_taken


def work_rows(program: Program, work: Work, *, in_driver: Mapping[str, str] | None = None) -> Iterator[list[Row]]:
    """`in_driver`: the properties that a task of Spark would have."""
    ends_with_query = _until_stopped(in_driver)
    calls = Calls()
    with StageOfTask(program.sink, in_driver) as stage, ends_with_query(calls.give_up):
        topics = Topics(stage)
        reader = InputReader(program, stage.waits_on, ends_with_query=ends_with_query)
        topics.is_replayed, topics.clock = work.replayed, work.clock
        tick = ShuffleMessage(kind="tick", input_partition=None, replayed=work.replayed)
        if work.ticks:
            yield list(_ticks(program, replace(tick, clock=work.clock), lambda sub: may_punctuate([sub])))
        if work.rewrites:
            yield list(_ticks(program, replace(tick, rewrites=True), _has_changelogs))
        for item in work.input_partitions:
            chunks = (
                reader.read(item.records, is_replayed=work.replayed) if item.records.start < item.records.end else ()
            )
            yield from input_rows(program, item, chunks, topics, calls)
        yield list(topics.finish())
        yield list(reader.report())


def _until_stopped(in_driver: Mapping[str, str] | None) -> EndsWithQuery:
    """Spark ends its own tasks. In the driver, the query's end has to be watched."""
    if in_driver is None:
        return lambda give_up: nullcontext()
    return partial(given_up_when_stopped, in_driver["sql.streaming.queryId"])


def input_rows(
    program: Program,
    item: InputRange,
    chunks: Iterable[pa.RecordBatch],
    topics: Topics,
    caller: Caller | None = None,
) -> Iterator[list[Row]]:
    """Turns the records of one input partition into messages and staged records. `chunks` are read only if records are
    processed or combined here, or belong to a global table. Other tasks read their records themselves."""
    input_partition = item.input_partition
    plan = program.plan
    inputs = plan.inputs.get(input_partition.group, [])
    tables = plan.global_inputs.get(input_partition.group, [])
    here = [
        _Here(program, sub, node, input_partition, topics, caller)
        for sub, node in inputs
        if sub.level == IN_SOURCE_TASKS
    ]
    away = [(sub, node) for sub, node in inputs if sub.level != IN_SOURCE_TASKS]
    combining = columnar_forms_of(program).combining
    combined = [
        (sub, node, _combining(program, node, input_partition, topics, columnar))
        for sub, node in away
        if (columnar := combining(sub.number)) is not None
    ]
    tick = ShuffleMessage(
        kind="tick",
        input_partition=input_partition,
        sequence=1 << 30,
        behind=item.behind,
        clock=topics.clock,
        replayed=topics.is_replayed,
        paused=item.paused,
    )
    for sequence, columns in enumerate(chunks if tables or here or combined else ()):
        message = replace(tick, kind="raw", sequence=sequence, columns=columns)
        rows: list[Row] = []
        for sub, node in tables:
            data = replace(message, input=node.name, behind=False, paused=None).pack()
            rows += [(sub.number, partition, data) for partition in range(sub.tasks)]
        for sub, node, payload_of in combined:
            data = replace(message, kind="combined", input=node.name, columns=payload_of(columns)).pack()
            rows.append((sub.number, input_partition.partition, data))
        for task in here:
            rows += task.feed(columns)
        yield rows
    rows = []
    if item.records.start < item.records.end:
        message = replace(tick, kind="range", sequence=0, columns=range_columns(item.records))
        rows += [
            (sub.number, input_partition.partition, replace(message, input=node.name).pack())
            for sub, node in away
            if combining(sub.number) is None
        ]
    if item.tells:
        for sub, node in away:
            rows.append((sub.number, input_partition.partition, replace(tick, input=node.name).pack()))
    for task in here:
        rows += task.finish(item)
    yield rows


class _Here:
    """A sub-topology without state, run in the source task for one input partition."""

    def __init__(
        self,
        program: Program,
        sub: SubPlan,
        node: Node,
        input_partition: InputPartition,
        topics: Topics,
        caller: Caller | None,
    ) -> None:
        self._input_partition = input_partition
        self._topics = topics
        self._input = node.name
        columnar_forms = columnar_forms_of(program)
        found = columnar_forms.of(sub.number)
        self._columnar = found if found is not None and found.kind == "stateless" else None
        self._outputs = Outputs(program, topics, input_partition)
        sub_topology = program.plan.topology.sub_topologies[sub.number]
        self._cuts = tuple(item for item in sub_topology.outputs if isinstance(item.operator, Repartition))
        self._task = BlockTask(
            program.plan.topology,
            sub_topology,
            columnar_forms.block_plan(sub.number),
            partition=input_partition.partition,
            maps={TIMES: OrderedMap()},
            outputs=self._outputs,
            settings=program.settings,
            caller=caller,
        )
        self._letters = Letters()
        reader = SourceReader(
            node,
            on_deserialization_error=program.on_deserialization_error,
            drop=topics.drop,
            dead_letter=self._letters.add,
        )
        self._reader = TopicReader(reader, input_partition)

    def feed(self, columns: pa.RecordBatch) -> Iterator[Row]:
        if self._columnar is not None:
            try:
                found = self._columnar.run(self._input, columns, topic=self._input_partition.group)
            except FALLBACK:
                pass
            else:
                self._topics.note_rows({self._input: len(columns)})
                for emission in found:
                    self._outputs.emit_columns(emission)
                return self._outputs.ready_rows()
        for block in all_taken(self._reader, self._input, columns, self._letters):
            self._task.process_block(block)
        return self._outputs.ready_rows()

    def finish(self, item: InputRange) -> Iterator[Row]:
        self._task.end_of_batch()
        self._task.close()
        for reason, count in self._task.dropped.items():
            self._topics.drop(reason, count)
        self._topics.note_rows(self._task.rows)
        condition = condition_after(is_behind=item.behind, is_at_boundary=item.paused is not None, is_buffered=False)
        return self._outputs.finish(self._cuts, condition, tells=item.tells)


def _combining(
    program: Program, node: Node, input_partition: InputPartition, topics: Topics, columnar: ColumnarAggregate
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Returns the function that combines records before the shuffle, as the task's columnar form asks for it."""
    outputs = Outputs(program, topics, input_partition)
    reader = SourceReader(
        node,
        on_deserialization_error=program.on_deserialization_error,
        drop=topics.drop,
        dead_letter=outputs.add_dead_letter,
    )
    return lambda columns: outputs.combined(columnar, columns, input_partition, TopicReader(reader, input_partition))


def _ticks(program: Program, tick: ShuffleMessage, is_told: Callable[[SubTopology], bool]) -> Iterator[Row]:
    """For all tasks of the sub-topologies that are told."""
    data = tick.pack()
    for sub in program.plan.topology.sub_topologies:
        if is_told(sub):
            for partition in range(program.plan.subs[sub.number].tasks):
                yield sub.number, partition, data


def _has_changelogs(sub: SubTopology) -> bool:
    return any(spec.logged for spec in sub.stores)
