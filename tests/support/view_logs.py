"""A log in memory for what explains rows, and topologies of tests as versions of a view."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from suiro.lineage import InputRecord, Place, global_topics, merged
from suiro.streams import StreamsBuilder, serdes
from suiro.streams.interpreter import Interpreter
from suiro.streams.serdes import SessionWindowedSerde, TimeWindowedSerde
from suiro.streams.topology.nodes import Sink
from suiro.streams.topology.topology import Topology
from suiro.views.analysis.explain.replay import OUTPUT, Side
from support.drawn_topologies import Drawn
from support.spark_streams import Sent, encoded

PREFIX = "p."


class MemoryLog:
    """Records by topic, each topic one partition."""

    def __init__(self, records: Sequence[InputRecord]) -> None:
        self._records = list(records)

    @classmethod
    def of(cls, topology: Topology, sent: Sequence[Sent]) -> MemoryLog:
        offsets: dict[str, int] = {}
        found = []
        for record in sent:
            offset = offsets.get(record.topic, 0)
            offsets[record.topic] = offset + 1
            key, value = encoded(topology, record)
            found.append(InputRecord(record.topic, 0, offset, record.timestamp, key, value))
        return cls(found)

    @property
    def ends(self) -> Mapping[tuple[str, int], int]:
        ends: dict[tuple[str, int], int] = {}
        for record in self._records:
            place = record.topic, record.partition
            ends[place] = max(ends.get(place, 0), record.offset + 1)
        return ends

    def read(self, topology: Topology) -> Iterator[InputRecord]:
        tables = global_topics(topology)
        input_partitions: dict[tuple[str, int], list[InputRecord]] = {}
        for record in self._records:
            if record.topic in topology.source_topics:
                input_partitions.setdefault((record.topic, record.partition), []).append(record)
        for place in sorted(input_partitions):
            if place[0] in tables:
                yield from input_partitions.pop(place)
        yield from merged(topology, {place: iter(input_partitions[place]) for place in sorted(input_partitions)})


def built(case: Drawn) -> Topology:
    """A drawn topology; its output is `p.out`."""
    builder = StreamsBuilder()
    case.build(builder, PREFIX)
    return builder.build()


def log_of(sides: tuple[Side, Side], case: Drawn) -> MemoryLog:
    """A drawn case's records in every topic that one of the versions reads; each topic is there once."""
    records: dict[Place, InputRecord] = {}
    for side in sides:
        topics = sorted(side.topology.source_topics)
        sent = [
            Sent(topic, record.key, record.value, record.timestamp) for topic in topics for record in case.sent(PREFIX)
        ]
        for record in MemoryLog.of(side.topology, sent).read(side.topology):
            records.setdefault(record.place, record)
    return MemoryLog(list(records.values()))


class PlainCodec:
    """Keys are a column of their bytes as text; values JSON, objects or not."""

    key: tuple[str, ...] = ("key",)

    def __init__(self, sink: Sink) -> None:
        self.topic, self.key_serde = sink.topic, sink.key or serdes.natural

    def decode(
        self, keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> tuple[list[tuple[Any, ...]], list[str | None]]:
        texts = [None if value is None else _object(value) for value in values]
        return [self._columns(key) for key in keys], texts

    def _columns(self, key: bytes) -> tuple[Any, ...]:
        return (key.decode("latin-1"),)


class WindowCodec(PlainCodec):
    key = ("key", "window_start", "window_end")

    def _columns(self, key: bytes) -> tuple[Any, ...]:
        found = self.key_serde.deserialize("", key)
        return found.key, found.start, found.end


def sink_of(topology: Topology, topic: str) -> Sink:
    (found,) = (
        node.operator for node in topology.nodes if isinstance(node.operator, Sink) and node.operator.topic == topic
    )
    return found


def is_windowed(topology: Topology, topic: str) -> bool:
    return isinstance(sink_of(topology, topic).key, TimeWindowedSerde | SessionWindowedSerde)


def as_version(number: int, topology: Topology, topic: str, *, windowed: bool = False) -> Side:
    """Of a topology of a test whose sink of `topic` is the view's output. `windowed`: the window is columns of the key,
    not bytes in it."""
    sink = sink_of(topology, topic)
    nodes = tuple(replace(node, name=OUTPUT) if node.operator is sink else node for node in topology.nodes)
    codec = WindowCodec(sink) if windowed else PlainCodec(sink)
    return Side(version=number, topology=Topology(nodes, topology.stores), codec=codec)


def rows_of(side: Side, log: MemoryLog) -> dict[tuple[Any, ...], str | None]:
    """An offline run of the interpreter over the whole log, nothing left out: the last row of each key."""
    return rows_from(side, log.read(side.topology))


def rows_from(side: Side, records: Iterable[InputRecord]) -> dict[tuple[Any, ...], str | None]:
    """The same of these records, in this order."""
    interpreter = Interpreter(side.topology)
    for record in records:
        topic, partition, offset, timestamp, key, value, headers = record
        interpreter.pipe(topic, timestamp, key, value, headers, place=(partition, offset))
    interpreter.end_of_batch()
    found: dict[tuple[Any, ...], str | None] = {}
    for item in interpreter.outputs:
        if item.key is not None:
            (key_columns,), (text,) = side.codec.decode([item.key], [item.value])
            found[key_columns] = text
    return found


def _object(data: bytes) -> str:
    try:
        value = json.loads(data)
    except ValueError:
        value = data.hex()  # of a number in bytes
    return json.dumps(value if isinstance(value, dict) else {"value": value})
