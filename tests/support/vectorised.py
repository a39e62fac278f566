"""One sub-topology two ways: by the rules, record by record, and by its columnar form, a chunk of columns at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from suiro.protocol.columnar import HEADERS_TYPE
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Origin, Record
from suiro.streams.serdes import natural
from suiro.streams.sources import SourceReader
from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES, Task
from suiro.streams.topology.nodes import Node, Repartition, Sink
from suiro.streams.topology.topology import SubTopology, Topology
from suiro.streams.vectorised.by_rules import ColumnContext
from suiro.streams.vectorised.plan import ColumnarForm, columnar_form_of
from suiro.streams.vectorised.stateless import FALLBACK, Reason
from suiro.streams.vectorised.stream_table_join import Arrived, InputChunks
from suiro.streams_spark.record_readers import TopicReader, records_of
from suiro.streams_spark.shuffle_message import InputPartition

SETTINGS = TaskSettings(coalesces=True)
TOPIC = "in"

Row = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]
"""Key, value, timestamp, headers."""


def columns_of(rows: list[Row], first_offset: int = 0) -> pa.RecordBatch:
    columns = {
        "key": pa.array([row[0] for row in rows], pa.binary()),
        "value": pa.array([row[1] for row in rows], pa.binary()),
        "offset": pa.array(range(first_offset, first_offset + len(rows)), pa.int64()),
        "timestamp": pa.array([row[2] for row in rows], pa.int64()),
    }
    if any(row[3] for row in rows):
        headers = [[{"key": name, "value": value} for name, value in row[3]] for row in rows]
        columns["headers"] = pa.array(headers, HEADERS_TYPE)
    return pa.RecordBatch.from_pydict(columns)


@dataclass
class Gathered:
    """What left, by node, as bytes."""

    by_node: dict[str, list[Row]] = field(default_factory=dict)
    dead_letters: list[Any] = field(default_factory=list)

    def emit(self, node: Node, record: Record) -> None:
        operator = node.operator
        assert isinstance(operator, Sink | Repartition)
        assert isinstance(operator.topic, str)
        if isinstance(operator, Repartition) and record.key is None and not operator.keeps_null_keys:
            return
        key = None
        if record.key is not None:
            key = (operator.key or natural).serialize(operator.topic, record.key)
        value = None
        if record.value is not None:
            value = (operator.value or natural).serialize(operator.topic, record.value)
        row = (key, value, record.timestamp, record.headers)
        self.by_node.setdefault(node.name, []).append(row)

    def take(self, emissions: list[Any]) -> None:
        for item in emissions:
            headers: list[Any] = [()] * len(item)
            if item.headers is not None:
                headers = [
                    tuple((each["key"], each["value"]) for each in row) if row else ()
                    for row in item.headers.to_pylist()
                ]
            rows = list(
                zip(
                    item.keys.to_pylist(),
                    item.values.to_pylist(),
                    item.timestamps.tolist(),
                    headers,
                    strict=True,
                )
            )
            if rows:
                self.by_node.setdefault(item.node.name, []).extend(rows)

    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None:
        self.dead_letters.append((topic, record.key, record.value, record.timestamp))

    def add_dead_letter(self, letter: Any) -> None:
        self.dead_letters.append((letter.topic, letter.key, letter.value, letter.timestamp))


@dataclass
class Result:
    outputs: dict[str, list[Row]]
    changes: dict[str, dict[bytes, bytes | None]]
    dropped: dict[str, int]
    dead_letters: list[Any]


State = dict[str, dict[bytes, bytes]]


class Rules:
    """A task that starts anew from the state's bytes in every batch."""

    def __init__(self, topology: Topology, sub: SubTopology, *, policy: str = "fail") -> None:
        self.topology, self.sub, self.policy = topology, sub, policy

    def batch(self, state: State, chunks: list[list[Row]]) -> Result:
        names = [*(spec.name for spec in self.sub.stores), TIMES]
        maps = {name: OrderedMap(state.get(name, {}).items()) for name in names}
        gathered = Gathered()
        task = Task(self.topology, self.sub, partition=0, maps=maps, outputs=gathered, settings=SETTINGS)
        dropped: dict[str, int] = {}
        reader = reader_of(self.sub, self.policy, dropped, gathered)
        for offset, row in enumerate(row for chunk in chunks for row in chunk):
            record = reader.read(TOPIC, 0, offset, row[2], row[0], row[1], row[3])
            if record is not None:
                origin = Origin(TOPIC, 0, offset, row[2], row[3])
                task.process(self.sub.inputs[0].name, record, origin)
        task.end_of_batch()
        for reason, count in task.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
        changes = {name: dict(rows.take_changes()) for name, rows in maps.items()}
        for name, rows in maps.items():
            state[name] = dict(rows.range())
        return Result(gathered.by_node, changes, dropped, gathered.dead_letters)


class Columns:
    """The columnar form; `reloads`: its rows are made anew from the state's bytes in every batch."""

    def __init__(self, topology: Topology, sub: SubTopology, *, policy: str = "fail", reloads: bool = True) -> None:
        found = columnar_form_of(topology, sub, SETTINGS)
        assert not isinstance(found, Reason), found
        self.columnar: ColumnarForm = found
        self.topology, self.sub, self.policy, self.reloads = topology, sub, policy, reloads
        self._rows: Any = None

    def forget(self) -> None:
        self._rows = None

    def batch(self, state: State, chunks: list[list[Row]]) -> Result:
        columnar = self.columnar
        assert columnar.kind == "aggregate"
        gathered = Gathered()
        dropped: dict[str, int] = {}
        context = ColumnContext(0, gathered.dead_letter, dropped)
        reader = reader_of(self.sub, self.policy, dropped, gathered)
        payloads, offset = [], 0
        for chunk in chunks:
            payloads.append(
                columnar.prepare(
                    columns_of(chunk, offset),
                    TOPIC,
                    partial(records_of, TopicReader(reader, InputPartition(TOPIC, 0))),
                    context,
                )
            )
            offset += len(chunk)
        if self._rows is None or self.reloads:
            self._rows = columnar.new_rows()
            stored = state.get(columnar.store, {})
            self._rows.load(pa.array(list(stored), pa.binary()), pa.array(list(stored.values()), pa.binary()))
        times = OrderedMap(state.get(TIMES, {}).items())
        gathered.take(columnar.run(payloads, self._rows, times, context))
        changed = self._rows.take_changes()
        changes = {TIMES: dict(times.take_changes()), columnar.store: {}}
        if changed is not None:
            changes[columnar.store] = dict(zip(*(column.to_pylist() for column in changed), strict=True))
        state[TIMES] = dict(times.range())
        state[columnar.store] = dict(zip(*(column.to_pylist() for column in self._rows.rows()), strict=True))
        return Result(gathered.by_node, changes, dropped, gathered.dead_letters)


def reader_of(sub: SubTopology, policy: str, dropped: dict[str, int], gathered: Gathered) -> SourceReader:
    def drop(reason: str) -> None:
        dropped[reason] = dropped.get(reason, 0) + 1

    return SourceReader(sub.inputs[0], on_deserialization_error=policy, drop=drop, dead_letter=gathered.add_dead_letter)


def merged(input_partitions: list[list[Row]]) -> list[tuple[int, int, Row]]:
    """(input partition, offset, row) as a task takes them: the earliest head first, ties in the order of the input
    partitions."""
    places = [0] * len(input_partitions)
    found = []
    while True:
        heads = [
            (rows[place][2], input_partition)
            for input_partition, (rows, place) in enumerate(zip(input_partitions, places, strict=True))
            if place < len(rows)
        ]
        if not heads:
            return found
        _, input_partition = min(heads)
        found.append(
            (
                input_partition,
                places[input_partition],
                input_partitions[input_partition][places[input_partition]],
            )
        )
        places[input_partition] += 1


class JoinRules(Rules):
    """`topics`: of the input partitions, in the order in which ties are settled; each input partition is an input of
    its own."""

    def merge(self, state: State, inputs: list[tuple[str, str]], input_partitions: list[list[Row]]) -> Result:
        names = [*(spec.name for spec in self.sub.stores), TIMES]
        maps = {name: OrderedMap(state.get(name, {}).items()) for name in names}
        gathered = Gathered()
        task = Task(self.topology, self.sub, partition=0, maps=maps, outputs=gathered, settings=SETTINGS)
        readers = [
            SourceReader(self.topology.node(name), drop=lambda reason: None, dead_letter=gathered.add_dead_letter)
            for name, _ in inputs
        ]
        for input_partition, offset, row in merged(input_partitions):
            name, topic = inputs[input_partition]
            record = readers[input_partition].read(topic, 0, offset, row[2], row[0], row[1], row[3])
            assert record is not None
            task.process(name, record, Origin(topic, 0, offset, row[2], row[3]))
        task.end_of_batch()
        changes = {name: dict(rows.take_changes()) for name, rows in maps.items()}
        for name, rows in maps.items():
            state[name] = dict(rows.range())
        return Result(gathered.by_node, changes, dict(task.dropped), gathered.dead_letters)


class JoinColumns:
    def __init__(self, topology: Topology, sub: SubTopology) -> None:
        found = columnar_form_of(topology, sub, SETTINGS)
        assert not isinstance(found, Reason), found
        self.columnar = found
        self.rows: Any = None

    def merge(self, state: State, inputs: list[tuple[str, str]], input_partitions: list[list[list[Row]]]) -> Result:
        columnar = self.columnar
        assert columnar.kind == "join"
        gathered = Gathered()
        dropped: dict[str, int] = {}
        context = ColumnContext(0, gathered.dead_letter, dropped)
        if self.rows is None:
            self.rows = columnar.new_rows()
            stored = state.get(columnar.store, {})
            self.rows.load(pa.array(list(stored), pa.binary()), pa.array(list(stored.values()), pa.binary()))
        times = OrderedMap(state.get(TIMES, {}).items())
        chunks = [
            InputChunks(input=name, topic=topic, columns=[columns_of(rows) for rows in input_partition])
            for (name, topic), input_partition in zip(inputs, input_partitions, strict=True)
        ]
        arrived = Arrived(columnar, chunks)
        try:
            left = list(columnar.run(arrived, self.rows, times, context))
        except FALLBACK as error:
            raise AssertionError("the table has changed, and the rules cannot run any more") from error
        gathered.take(left)
        changed = self.rows.take_changes()
        changes = {TIMES: dict(times.take_changes()), columnar.store: {}}
        if changed is not None:
            changes[columnar.store] = dict(zip(*(column.to_pylist() for column in changed), strict=True))
        state[TIMES] = dict(times.range())
        state[columnar.store] = dict(zip(*(column.to_pylist() for column in self.rows.rows()), strict=True))
        return Result(gathered.by_node, changes, dropped, gathered.dead_letters)
