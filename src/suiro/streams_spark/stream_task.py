"""`StreamTask`: one task of the topology. Spark's stateful operator runs it in each micro-batch that has input for it.

`run_task` is the whole of it: messages in, rows out, the state changed by one segment. `partition_group` says in which
order records of several input partitions are taken. Records of global tables come before all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa

from suiro.streams.blocks import BlockTask
from suiro.streams.call_loop import Calls
from suiro.streams.sources import SourceReader
from suiro.streams.stores import open_store
from suiro.streams.task import TIMES
from suiro.streams.times import UNKNOWN, keep_number, number_at, numbers_of
from suiro.streams.topology.nodes import GlobalTableSource, Node, Repartition, Source
from suiro.streams_spark.buffered_records import BUFFERED, BufferedRecords
from suiro.streams_spark.columnar_forms import columnar_forms_of
from suiro.streams_spark.condition import Condition, condition_after, tells
from suiro.streams_spark.global_tables import global_tables_of
from suiro.streams_spark.notes import INPUT_TIME, NOTES, PARTITION_TIME, TOLD, partition_time_key
from suiro.streams_spark.outputs import Outputs, Topics
from suiro.streams_spark.partition_group import PartitionGroup
from suiro.streams_spark.program import Program
from suiro.streams_spark.rebuild import BufferedFrom
from suiro.streams_spark.record_queue import RecordQueue
from suiro.streams_spark.record_readers import CarriedReader, RecordReader, TopicReader
from suiro.streams_spark.reports import TaskReport, pack_report
from suiro.streams_spark.shuffle_message import (
    STAGED,
    InputPartition,
    Row,
    ShuffleMessage,
    by_input_partition,
)
from suiro.streams_spark.source_names import follow_sources
from suiro.streams_spark.state_log import TaskState
from suiro.streams_spark.taking import Letters


class StreamTask:
    """Runs a sub-topology over blocks."""

    def __init__(self, program: Program, number: int, partition: int, state: TaskState, topics: Topics) -> None:
        plan = program.plan
        self._program = program
        self._topology = plan.topology
        self._sub = plan.topology.sub_topologies[number]
        self._partition = partition
        follow_sources(plan, self._sub, state)
        self._buffered = BufferedRecords(state.map(BUFFERED))
        self._notes = state.map(NOTES)
        self._state = state
        self._topics = topics
        times = {name.decode(): time for name, time in numbers_of(self._notes, INPUT_TIME)}
        self.outputs = Outputs(program, topics, InputPartition.of_task(number, partition), times)
        self.logged = [spec.name for spec in self._sub.stores if spec.logged]
        self._cuts = tuple(node for node in self._sub.outputs if isinstance(node.operator, Repartition))
        self._tables = {name: global_tables_of(program)[name] for name in self._sub.global_tables}
        self._readers: dict[str, SourceReader] = {}
        self._letters = Letters()
        self._was_told = self._notes.get(TOLD) is not None
        self._condition = Condition.RUNNING
        self._waiting: list[BufferedFrom] = []
        self._buffered_records: Counter[str] = Counter()

    def take(self, messages: list[ShuffleMessage]) -> Iterator[Row]:
        """`messages`: emptied, so that the memory of records is free once they are taken."""
        for spec in self._sub.stores:
            if spec.name not in self._state.stores:
                self._state.stores[spec.name] = open_store(spec, self._state.map(spec.name), keeps=True)
        clock = self._topics.clock or 0
        self._task = BlockTask(
            self._topology,
            self._sub,
            columnar_forms_of(self._program).block_plan(self._sub.number),
            partition=self._partition,
            maps={name: self._state.map(name) for name in (*(spec.name for spec in self._sub.stores), TIMES)},
            outputs=self.outputs,
            settings=self._program.settings,
            wall_clock_time=clock,
            global_stores={name: table.store(self._state.map(name)) for name, table in self._tables.items()},
            opened_stores=self._state.stores,
            caller=Calls(),
        )
        group = PartitionGroup(self._queues(messages), self._notes)
        messages.clear()
        for block in group.blocks(self._letters):
            self._task.process_block(block)
            yield from self.outputs.ready_rows()
        times = group.times()
        if max(times.values(), default=UNKNOWN) > UNKNOWN:
            self._task.pass_to(times)
        is_buffered = group.close()
        self._buffered_records.update(group.buffered)
        self._waiting += [
            BufferedFrom(input_partition.group, input_partition.partition, offset, time)
            for input_partition, offset, time in group.buffered_from
        ]
        self._condition = condition_after(
            is_behind=group.is_behind, is_at_boundary=group.is_paused, is_buffered=is_buffered
        )
        if clock:
            self._task.advance_wall_clock(clock)

    def end_task(self) -> None:
        self._task.is_settled = self._condition is Condition.RUNNING
        self._task.end_of_batch()
        self._task.close()
        for reason, count in self._task.dropped.items():
            self._topics.drop(reason, count)
        self._topics.note_rows(self._task.rows)

    def finish(self) -> Iterator[Row]:
        self.end_task()
        is_told = tells(self._condition, was_told=self._was_told)
        yield from self.outputs.finish(self._cuts, self._condition, tells=is_told)
        for item in self._waiting:
            yield STAGED, 0, pack_report(item)
        is_idle = self._condition is not Condition.RUNNING
        if self._cuts and self._was_told != is_idle:
            self._notes.put(TOLD, b"" if is_idle else None)
        for name, time in self.outputs.input_times.items():
            keep_number(self._notes, INPUT_TIME + name.encode(), time)
        for name, reader in self._readers.items():
            for (topic, partition), time in reader.state().items():
                keep_number(self._notes, partition_time_key(name, topic, partition), time)

    def report(self) -> TaskReport | None:
        """None where there is nothing to tell. Asked for when the state is saved."""
        if not self._sub.stores and len(self._sub.inputs) < 2:
            return None
        sizes: dict[str, tuple[int, int]] = {}
        for name in (*(spec.name for spec in self._sub.stores), *self._tables):
            if (columns := self._state.columns.get(name)) is not None:
                sizes[name] = len(columns), columns.nbytes
            else:
                sizes[name] = len(rows := self._state.map(name)), rows.bytes_about
        return TaskReport(
            sub_topology=self._sub.number,
            partition=self._partition,
            stores=sizes,
            buffered=dict(self._buffered_records),
            condition=self._condition,
        )

    @property
    def now(self) -> int:
        return self._task.stream_time

    def _queues(self, messages: Sequence[ShuffleMessage]) -> list[RecordQueue]:
        """In the order in which ties are settled. Fills global tables on the way."""
        queues: dict[tuple[InputPartition, str], RecordQueue] = {}

        def queue_of(input_partition: InputPartition, input_: str) -> RecordQueue:
            found = queues.get((input_partition, input_))
            if found is None:
                node = self._topology.node(input_)
                found = queues[input_partition, input_] = RecordQueue(
                    input_partition,
                    input_,
                    self._record_reader(node, input_partition),
                    self._buffered,
                    self._notes,
                    isinstance(node.operator, Repartition),
                )
            return found

        for input_partition, input_, number, columns in self._buffered.all():
            queue_of(input_partition, input_).add_buffered(number, columns)
        tables = {
            node.parents[0]: node.operator.store
            for node in self._topology.nodes
            if isinstance(node.operator, GlobalTableSource) and node.operator.store in self._tables
        }
        new: dict[RecordQueue, list[pa.RecordBatch]] = {}
        for input_partition, item in by_input_partition(messages):
            if item.input in tables:
                self._fill(tables[item.input], input_partition, item)
                continue
            queue = queue_of(input_partition, item.input)
            queue.behind |= item.behind
            queue.paused = queue.paused if item.paused is None else item.paused
            queue.tick = max(queue.tick, item.time)
            if item.columns is not None:
                new.setdefault(queue, []).append(item.columns)
        for queue, columns in new.items():
            queue.add_all(columns)
        return [queues[key] for key in sorted(queues, key=self._order)]

    def _order(self, queue: tuple[InputPartition, str]) -> tuple[InputPartition, int]:
        """Settles ties: of repartitions that one task feeds, the one comes first that it sends a record to first."""
        input_partition, input_ = queue
        visits = self._program.plan.visits
        return input_partition, visits.get(input_partition.group, visits[""])[input_]

    def _fill(self, name: str, input_partition: InputPartition, message: ShuffleMessage) -> None:
        if message.columns is None:
            return
        place = partition_time_key(message.input, input_partition.group, input_partition.partition)
        found = self._tables[name].read(
            input_partition,
            message.columns,
            number_at(self._notes, place),
            self._topology.node(message.input),
            self._program.on_deserialization_error,
        )
        rows = self._state.map(name)
        for key, row in found.rows:
            rows.put(key, row)
        if found.time > UNKNOWN:
            keep_number(self._notes, place, found.time)
        # Every task has the whole table, so one of them says what is left out of it.
        readers = self._program.plan.global_inputs[input_partition.group]
        first = next(sub for sub, node in readers if node.name == message.input)
        if (self._sub.number, self._partition) == (first.number, 0):
            for reason in found.dropped:
                self._topics.drop(reason)
            for letter in found.dead_letters:
                self.outputs.add_dead_letter(letter)

    def _reader(self, node: Node) -> SourceReader:
        found = self._readers.get(node.name)
        if found is None:
            found = self._readers[node.name] = SourceReader(
                node,
                on_deserialization_error=self._program.on_deserialization_error,
                drop=self._topics.drop,
                dead_letter=self._letters.add,
            )
            for place, time in numbers_of(self._notes, PARTITION_TIME + node.name.encode() + b"\0"):
                topic, partition = place.decode().split("\0")
                found.restore([((topic, int(partition)), time)])
        return found

    def _record_reader(self, node: Node, input_partition: InputPartition) -> RecordReader:
        if isinstance(node.operator, Source):
            return TopicReader(self._reader(node), input_partition)
        assert isinstance(node.operator, Repartition)
        return CarriedReader(node.operator, self._program.plan.repartition_topic(node.operator), self._partition)
