"""Tasks: one task of the topology each, run by Spark's stateful operator once in every micro-batch that concerns it.

`run_task` is the whole of it: messages in, rows out, the state changed by one segment. Records of several lanes are
taken as Kafka Streams takes them from its partitions: the earliest head first, ties by topic and partition. Where a
lane has more records in the log than this micro-batch reads, the others wait for it (`$held`): so any cut of the log
into micro-batches gives one order. Records of global tables come before all others.
"""

from __future__ import annotations

import heapq
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from suiro.streams.nodes import GlobalTableSource, Node, Repartition, Source
from suiro.streams.records import Headers, Origin, Record
from suiro.streams.sources import SourceReader
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.task import TIMES, Task
from suiro.streams_spark.changes import read_change
from suiro.streams_spark.global_tables import global_table
from suiro.streams_spark.outputs import Outputs, Topics
from suiro.streams_spark.program import Program
from suiro.streams_spark.rebuild import HeldFrom
from suiro.streams_spark.shuffle_message import STAGED, Lane, Row, ShuffleMessage, headers_list
from suiro.streams_spark.state_log import StateLog, TaskState
from suiro.streams_spark.twins import twins_of

__all__ = ["run_task"]

HELD = "$held"
NOTES = "$notes"
"""Maps beside the stores': records that wait, and what the runner itself remembers."""

_INT64 = struct.Struct(">q")
_TOLD = b"told\0"
_LANE_TIME = b"lane\0"
_TICK = b"tick\0"
_REACHED = b"reached\0"
_PARTITION_TIME = b"partition\0"


def run_task(
    program: Program, number: int, partition: int, messages: Sequence[bytes], log: StateLog, topics: Topics
) -> list[Row]:
    """One micro-batch of one task."""
    from suiro.streams_spark.column_task import ColumnTask

    twin = twins_of(program.run, program.plan.topology, program.settings).of(number)
    if twin is None or twin.kind == "stateless":
        running = StreamTask(program, number, partition, log.load(), topics)
    else:
        running = ColumnTask(program, number, partition, log.load({twin.store: twin.new_rows}), topics, twin)
    unpacked = [ShuffleMessage.unpack(data) for data in messages]
    if any(item.muted for item in unpacked):
        topics.mute(program.plan.changelogs)
    running.take(unpacked)
    rows = running.finish()
    changes = log.save()
    for spec in running.logged:
        if spec in changes:
            running.outputs.changelog(spec, changes[spec], running.now)
    rows += topics.finish()
    return rows


class StreamTask:
    """Runs the rules."""

    def __init__(
        self, program: Program, number: int, partition: int, state: TaskState, topics: Topics
    ) -> None:
        plan = program.plan
        self._program = program
        self._topology = plan.topology
        self._sub = plan.topology.sub_topologies[number]
        self._partition = partition
        self._held = state.map(HELD)
        self._notes = state.map(NOTES)
        self._state = state
        self._topics = topics
        times = {
            key.removeprefix(_LANE_TIME).decode(): _INT64.unpack(data)[0]
            for key, data in self._notes.prefix(_LANE_TIME)
        }
        twins = twins_of(program.run, plan.topology, program.settings)
        self.outputs = Outputs(plan, topics, Lane.of_task(number, partition), times, twins)
        self.logged = [spec.name for spec in self._sub.stores if spec.logged]
        self._cuts = tuple(node for node in self._sub.outputs if isinstance(node.operator, Repartition))
        self._tables = {
            name: global_table(program.run, plan.topology.store(name)) for name in self._sub.global_tables
        }
        self._readers: dict[str, SourceReader] = {}
        self._behind = False
        self._paused = False
        self._waiting: list[HeldFrom] = []

    # -- a micro-batch ---------------------------------------------------------------------------------------

    def take(self, messages: list[ShuffleMessage]) -> None:
        for spec in self._sub.stores:
            if spec.name not in self._state.stores:
                self._state.stores[spec.name] = open_store(spec, self._state.map(spec.name), keeps=True)
        clock = max((item.clock for item in messages if item.clock is not None), default=0)
        self._task = Task(
            self._topology,
            self._sub,
            partition=self._partition,
            maps={name: self._state.map(name) for name in (*(spec.name for spec in self._sub.stores), TIMES)},
            outputs=self.outputs,
            settings=self._program.settings,
            wall_clock_time=clock,
            global_stores={name: table.store(self._state.map(name)) for name, table in self._tables.items()},
            opened_stores=self._state.stores,
        )
        messages.sort(key=lambda item: item.sequence)
        queues = self._queues(messages)
        if len(queues) == 1:
            for record, origin, carried in queues[0].records():
                self._task.process(queues[0].input, record, origin, carried)
        elif queues:
            self._merge(queues)
        self._pass_time(queues)
        is_held = False
        for queue in queues:
            is_held |= queue.close()
            if queue.held_from is not None:
                self._waiting.append(HeldFrom(queue.lane.group, queue.lane.partition, *queue.held_from))
        waits = any(queue.behind for queue in queues)
        self._paused = not waits and any(queue.paused is not None for queue in queues)
        self._behind = is_held or waits or self._paused
        if clock:
            self._task.advance_wall_clock(clock)

    def _pass_time(self, queues: Sequence[_Queue]) -> None:
        """Lanes tell how far they have come by records of other tasks. Time passes by that, but not further than a
        lane has come of which there are more records in the log."""
        limit = min(
            (q.reached for q in queues if q.behind or q.paused is not None or q.has_head), default=None
        )
        times: dict[str, int] = {}
        for queue in queues:
            time = queue.tick if limit is None else min(queue.tick, limit)
            times[queue.input] = max(time, times.get(queue.input, _NO_TIME))
        here = {(queue.lane, queue.input) for queue in queues}
        for key, data in self._notes.prefix(_REACHED):
            # A lane that tells nothing now is at its end; what it told while others were behind holds still.
            group, partition, input_ = key.removeprefix(_REACHED)[:-1].decode().split("\0")
            if (Lane(group, int(partition)), input_) not in here:
                (reached,) = _INT64.unpack(data)
                time = reached if limit is None else min(reached, limit)
                times[input_] = max(time, times.get(input_, _NO_TIME))
        if max(times.values(), default=_NO_TIME) > _NO_TIME:
            self._task.pass_to(times)

    def _merge(self, queues: Sequence[_Queue]) -> None:
        process = self._task.process
        heap: list[tuple[int, int, _Queue]] = []
        is_complete = is_open = True
        for index, queue in enumerate(queues):
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
            record, origin, carried = queue.taken()
            process(queue.input, record, origin, carried)
            if queue.advance():
                heapq.heapreplace(heap, (queue.timestamp, index, queue))
            else:
                heapq.heappop(heap)
                if queue.behind:
                    return
                is_open = is_open and not queue.stops_carried

    def end_task(self) -> None:
        self._task.is_settled = not self._behind
        self._task.end_of_batch()
        self._task.close()
        for reason, count in self._task.dropped.items():
            self._topics.drop(reason, count)

    def finish(self) -> list[Row]:
        self.end_task()
        was_behind = self._notes.get(_TOLD) is not None
        rows = list(
            self.outputs.finish(
                self._cuts,
                behind=self._behind and not self._paused,
                paused=self._paused,
                tells=self._behind or was_behind,
            )
        )
        rows += [(STAGED, 0, pickle.dumps(item, protocol=5)) for item in self._waiting]
        if self._behind != was_behind and self._cuts:
            self._notes.put(_TOLD, b"" if self._behind else None)
        for name, time in self.outputs.lane_times.items():
            _note(self._notes, _LANE_TIME + name.encode(), time)
        for name, reader in self._readers.items():
            for (topic, partition), time in reader.state().items():
                _note(self._notes, _PARTITION_TIME + f"{name}\0{topic}\0{partition}".encode(), time)
        return rows

    @property
    def now(self) -> int:
        return self._task.stream_time

    # -- what comes in ---------------------------------------------------------------------------------------

    def _queues(self, messages: Sequence[ShuffleMessage]) -> list[_Queue]:
        """In the order in which ties are settled. Fills global tables on the way."""
        queues: dict[tuple[Lane, str], _Queue] = {}

        def queue_of(lane: Lane, input_: str) -> _Queue:
            found = queues.get((lane, input_))
            if found is None:
                node = self._topology.node(input_)
                found = queues[lane, input_] = _Queue(
                    lane,
                    input_,
                    self._read(node, lane),
                    self._held,
                    self._notes,
                    isinstance(node.operator, Repartition),
                )
            return found

        for key, data in self._held.range():
            group, partition, input_, _ = held_parts(key)
            queue_of(Lane(group, partition), input_).held.append((key, pickle.loads(data)))
        tables = {
            node.parents[0]: node.operator.store
            for node in self._topology.nodes
            if isinstance(node.operator, GlobalTableSource) and node.operator.store in self._tables
        }
        for item in sorted(
            messages, key=lambda item: (item.lane is None, item.lane or Lane("", 0), item.sequence)
        ):
            if item.lane is None:
                continue
            if item.input in tables:
                self._fill(tables[item.input], item)
                continue
            queue = queue_of(item.lane, item.input)
            queue.behind |= item.behind
            queue.paused = queue.paused if item.paused is None else item.paused
            queue.tick = max(queue.tick, item.time)
            if item.columns is not None:
                queue.chunks.append(item.columns)
        return [queues[key] for key in sorted(queues)]

    def _fill(self, name: str, message: ShuffleMessage) -> None:
        lane, columns = message.lane, message.columns
        if lane is None or columns is None:
            return
        noted = _PARTITION_TIME + f"{message.input}\0{lane.group}\0{lane.partition}".encode()
        found = self._tables[name].read(
            lane,
            columns,
            _noted(self._notes, noted),
            self._topology.node(message.input),
            self._program.on_deserialization_error,
        )
        rows = self._state.map(name)
        for key, row in found.rows:
            rows.put(key, row)
        if found.time > _NO_TIME:
            _note(self._notes, noted, found.time)
        # Every task has the whole table, so one of them says what is left out of it.
        readers = self._program.plan.global_inputs[lane.group]
        first = next(sub for sub, node in readers if node.name == message.input)
        if (self._sub.number, self._partition) == (first.number, 0):
            for reason in found.dropped:
                self._topics.drop(reason)
            for letter in found.dead_letters:
                self.outputs.bury(letter)

    def _reader(self, node: Node) -> SourceReader:
        found = self._readers.get(node.name)
        if found is None:
            found = self._readers[node.name] = SourceReader(
                node,
                on_deserialization_error=self._program.on_deserialization_error,
                drop=self._topics.drop,
                dead_letter=self.outputs.bury,
            )
            prefix = _PARTITION_TIME + node.name.encode() + b"\0"
            for key, data in self._notes.prefix(prefix):
                topic, _, partition = key.removeprefix(prefix).decode().rpartition("\0")
                found.restore([((topic, int(partition)), _INT64.unpack(data)[0])])
        return found

    def _read(self, node: Node, lane: Lane) -> Callable[[Any], _Read | None]:
        """Item of a queue -> record, where it came from, its lane's time."""
        if isinstance(node.operator, Source):
            return _raw_reader(self._reader(node), lane)
        assert isinstance(node.operator, Repartition)
        return _carried_reader(
            node.operator, self._program.plan.repartition_topic(node.operator), self._partition
        )


_Read = tuple[Record, Origin, int]
RAW_ITEM = 6
"""Members of an item of a topic's lane, offset first."""
_NO_TIME = -1


def _raw_items(columns: Any) -> Iterator[tuple[int, int, bytes | None, bytes | None, Headers, None]]:
    return zip(
        columns.column("offset").to_pylist(),
        columns.column("timestamp").to_pylist(),
        columns.column("key").to_pylist(),
        columns.column("value").to_pylist(),
        headers_list(columns) or repeat(()),
        repeat(None),
        strict=False,
    )


def _carried_items(
    columns: Any, reached: int
) -> Iterator[tuple[int, int, bytes | None, bytes | None, Headers]]:
    """`reached`: how far the lane had come before this micro-batch."""
    return zip(
        columns.column("timestamp").to_pylist(),
        np.maximum(columns.column("time").to_numpy(), reached).tolist(),
        columns.column("key").to_pylist(),
        columns.column("value").to_pylist(),
        headers_list(columns) or repeat(()),
        strict=False,
    )


def _raw_reader(reader: SourceReader, lane: Lane) -> Callable[[Any], _Read | None]:
    read, topic, partition = reader.read, lane.group, lane.partition

    def of(item: Any) -> _Read | None:
        offset, timestamp, key, value, headers, extracted = item
        record = read(topic, partition, offset, timestamp, key, value, headers, extracted)
        if record is None:
            return None
        return record, Origin(topic, partition, offset, timestamp, headers), _NO_TIME

    return of


def _carried_reader(cut: Repartition, topic: str, partition: int) -> Callable[[Any], _Read | None]:
    key_of, value_of = cut.key.deserialize, cut.value.deserialize

    def of(item: Any) -> _Read | None:
        timestamp, time, key, value, headers = item
        read_key = None if key is None else key_of(topic, key)
        if value is None:
            read_value = None
        elif cut.is_change:
            read_value = read_change(cut.value, topic, value)
        else:
            read_value = value_of(topic, value)
        record = Record(read_key, read_value, timestamp, headers)
        return record, Origin(topic, partition, -1, timestamp, headers), time

    return of


class _Queue:
    """What one lane has for one input: records held before, then this micro-batch's."""

    __slots__ = (
        "_head",
        "_head_item",
        "_head_key",
        "_items",
        "_map",
        "_notes",
        "_reached",
        "_reached_key",
        "_read",
        "_tick_key",
        "behind",
        "chunks",
        "held",
        "held_from",
        "input",
        "is_carried",
        "lane",
        "paused",
        "tick",
        "timestamp",
    )

    def __init__(
        self,
        lane: Lane,
        input_: str,
        read: Callable[[Any], _Read | None],
        held: OrderedMap,
        notes: OrderedMap,
        is_carried: bool,
    ) -> None:
        self.lane = lane
        self.input = input_
        self.behind = False
        self.paused: int | None = None
        self.is_carried = is_carried
        self.held_from: tuple[int, int] | None = None  # offset and time of a topic's first record that stays
        self.held: list[tuple[bytes, Any]] = []
        self.chunks: list[Any] = []
        self.timestamp = 0
        self._read = read
        self._map = held
        self._notes = notes
        self._tick_key = _TICK + held_prefix(lane, input_)
        self._reached_key = _REACHED + held_prefix(lane, input_)
        self._reached = _noted(notes, self._reached_key)
        self.tick = max(self._reached, _noted(notes, self._tick_key))
        self._items: Iterator[Any] | None = None
        self._head: _Read | None = None
        self._head_item: Any = None
        self._head_key: bytes | None = None

    def records(self) -> Iterator[_Read]:
        """All, where there is no other lane to look at."""
        read = self._read
        for key, item in self.held:
            self._map.put(key, None)
            found = read(item)
            if found is not None:
                yield found
        for columns in self.chunks:
            for item in self._of(columns):
                found = read(item)
                if found is not None:
                    yield found
        self.held, self.chunks = [], []

    def advance(self) -> bool:
        """Moves the head on to the next record; False where there is none."""
        if self._items is None:
            self._items = self._walk()
        for item in self._items:
            found = self._read(item)
            if found is None:
                self._forget()
                continue
            self._head, self._head_item = found, item
            self.timestamp = found[0].timestamp
            return True
        self._head = None
        return False

    def taken(self) -> _Read:
        head = self._head
        assert head is not None
        self._forget()
        self._head = None
        return head

    @property
    def has_head(self) -> bool:
        return self._head is not None

    @property
    def reached(self) -> int:
        """Records that are still to come carry this time or a later one."""
        if self._head is not None:
            return self.timestamp
        return self.tick if self.paused is None else max(self.tick, self.paused)

    @property
    def stops_carried(self) -> bool:
        """It has no more records up to the boundary, and carried ones waited for it there."""
        return self.paused == _NO_TIME

    def close(self) -> bool:
        """Keeps what is left for the next micro-batch. True: some is."""
        left = self._left()
        is_held = False
        number = held_parts(self.held[-1][0])[3] + 1 if self.held else 0
        prefix = held_prefix(self.lane, self.input)
        for key, item in left:
            if not is_held and len(item) == RAW_ITEM:
                self.held_from = item[0], item[1] if item[-1] is None else item[-1]
            is_held = True
            if key is None:
                self._map.put(prefix + _INT64.pack(number), pickle.dumps(item, protocol=5))
                number += 1
        if self.tick > self._reached:
            _note(self._notes, self._reached_key, self.tick)
        if self.tick > _NO_TIME and is_held:
            _note(self._notes, self._tick_key, self.tick)
            return True
        if self._notes.get(self._tick_key) is not None:
            self._notes.put(self._tick_key, None)
        return is_held

    def _left(self) -> Iterator[tuple[bytes | None, Any]]:
        if self._head is not None:
            item = self._head_item
            if len(item) == RAW_ITEM:
                is_new = item[-1] is None
                item = (*item[:5], self.timestamp)
                if is_new and self._head_key is not None:
                    self._map.put(self._head_key, pickle.dumps(item, protocol=5))
            yield self._head_key, item
        if self._items is None:
            self._items = self._walk()
        for item in self._items:
            yield self._head_key, item

    def _forget(self) -> None:
        if self._head_key is not None:
            self._map.put(self._head_key, None)

    def _walk(self) -> Iterator[Any]:
        for self._head_key, item in self.held:  # noqa: B020 — the key of the item in hand
            yield item
        self._head_key = None
        for columns in self.chunks:
            yield from self._of(columns)

    def _of(self, columns: Any) -> Iterator[Any]:
        if "offset" in columns.schema.names:
            return _raw_items(columns)
        return _carried_items(columns, self._reached)


def held_prefix(lane: Lane, input_: str) -> bytes:
    return f"{lane.group}\0{lane.partition}\0{input_}\0".encode()


def held_parts(key: bytes) -> tuple[str, int, str, int]:
    group, partition, input_ = key[:-9].decode().split("\0")
    return group, int(partition), input_, _INT64.unpack(key[-8:])[0]


def _noted(notes: OrderedMap, key: bytes) -> int:
    data = notes.get(key)
    return _NO_TIME if data is None else int(_INT64.unpack(data)[0])


def _note(notes: OrderedMap, key: bytes, time: int) -> None:
    data = _INT64.pack(time)
    if notes.get(key) != data:
        notes.put(key, data)
