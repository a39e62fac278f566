"""Runs a whole topology in this process, one record at a time: one partition for each topic, no broker, no JVM.

The reference that the Spark runner is compared with, and the engine of `TopologyTestDriver`. As in Kafka Streams' own
test driver: a record runs to the end of every sub-topology before the next one is taken, repartitions included, and
every update of a table is forwarded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from suiro.errors import UsageError
from suiro.streams.call_loop import Calls
from suiro.streams.operators.context import TaskSettings
from suiro.streams.operators.functions import topic_of
from suiro.streams.records import Change, Headers, Origin, Record
from suiro.streams.serdes import Serde, natural
from suiro.streams.sources import DeadLetter, SourceReader, letter_of
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.stores.decoded import copier_of
from suiro.streams.task import TIMES, Around, Task
from suiro.streams.topology.nodes import GlobalTableSource, Node, Repartition, Sink, Source
from suiro.streams.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Emitted:
    """A record in an output topic: what was given to the sink, and the bytes it is in the topic."""

    topic: str
    record: Record
    key: bytes | None
    value: bytes | None


class Interpreter:
    around: Around | None = None
    """Set by a subclass that observes operators, see `suiro.lineage`."""

    def __init__(
        self,
        topology: Topology,
        *,
        settings: TaskSettings | None = None,
        on_deserialization_error: str = "fail",
        wall_clock_time: int = 0,
        maps: Mapping[tuple[int, str], OrderedMap] | None = None,
    ) -> None:
        """`maps`: the `maps` of an earlier interpreter, to go on where it stopped."""
        settings = settings or TaskSettings()
        self.topology = topology
        self.outputs: deque[Emitted] = deque()
        self.dropped: dict[str, int] = {}
        self.maps: dict[tuple[int, str], OrderedMap] = dict(maps or {})
        """By sub-topology and store. The maps of global tables are under -1."""
        self._queues: dict[tuple[str, str], deque[tuple[int, Node, Record, Origin]]] = {}
        """By node and topic, each record with its number: those that have any."""
        self._queued = 0
        """Records so far that were put into a queue."""
        self._offsets: dict[str, int] = {}
        tables = {
            parent: node.operator.store
            for node in topology.nodes
            if isinstance(node.operator, GlobalTableSource)
            for parent in node.parents
        }
        self._global_stores = {name: open_store(topology.store(name), self._map(-1, name)) for name in tables.values()}
        self._tasks = [
            Task(
                topology,
                sub,
                partition=0,
                maps={name: self._map(sub.number, name) for name in (*(s.name for s in sub.stores), TIMES)},
                outputs=self,
                settings=settings,
                wall_clock_time=wall_clock_time,
                global_stores=self._global_stores,
                around=self.around,
                caller=Calls(),
            )
            for sub in topology.sub_topologies
        ]
        self._inputs: dict[str, list[tuple[Node, SourceReader, Any]]] = {}
        for node in topology.nodes:
            if isinstance(node.operator, Source):
                reader = SourceReader(
                    node,
                    on_deserialization_error=on_deserialization_error,
                    drop=self._count,
                    dead_letter=self._add_dead_letter,
                )
                table = self._global_stores.get(tables.get(node.name, ""))
                for topic in node.operator.topics:
                    self._inputs.setdefault(topic, []).append((node, reader, table))
        self._readers = {node.name: task for task in self._tasks for node in task.sub_topology.inputs}

    def pipe(
        self,
        topic: str,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        place: tuple[int, int] | None = None,
        decoded: tuple[Any, Any] | None = None,
    ) -> None:
        """Feeds a record of an input topic and runs everything that follows from it. `place`: the partition and offset
        of a record that is in a log; by default partition 0 and the next offset. `decoded`: its key and value, if they
        were deserialised before."""
        if topic not in self._inputs:
            raise UsageError(
                f"the topology does not read topic {topic!r}; it reads {', '.join(sorted(self._inputs)) or 'none'}"
            )
        partition, offset = (0, self._offsets.get(topic, 0)) if place is None else place
        self._begin((topic, partition, offset))
        self._put(Origin(topic, partition, offset, timestamp, headers), key, value, decoded)
        self._run()

    def _begin(self, place: tuple[str, int, int]) -> None:
        """Called for each record that is piped, with its topic, partition and offset."""

    def _put(
        self, origin: Origin, key: bytes | None, value: bytes | None, decoded: tuple[Any, Any] | None = None
    ) -> None:
        """Puts a record into the queue, or into a global table."""
        topic, partition, offset, timestamp = origin.topic, origin.partition, origin.offset, origin.timestamp
        self._offsets[topic] = offset + 1
        for node, reader, table in self._inputs[topic]:
            record = reader.read(topic, partition, offset, timestamp, key, value, origin.headers, decoded=decoded)
            if record is None:
                continue
            if table is None:
                self._enqueue(node, record, origin)
            elif record.key is None:
                self._count("null key")
            else:
                table.put(record.key, record.value, record.timestamp)

    def advance_wall_clock(self, now_ms: int) -> None:
        for task in self._tasks:
            task.advance_wall_clock(now_ms)
        self._run()

    def end_of_batch(self) -> None:
        """Does what a runner that works in batches does at the end of a batch."""
        for task in self._tasks:
            task.end_of_batch()
            self._run()

    def store(self, name: str) -> Any:
        stores = {**self._global_stores, **{at: store for task in self._tasks for at, store in task.stores.items()}}
        if name not in stores:
            raise UsageError(f"the topology has no store {name!r}; it has {', '.join(sorted(stores))}")
        return stores[name]

    @property
    def dropped_total(self) -> int:
        return sum(self.dropped.values()) + sum(n for task in self._tasks for n in task.dropped.values())

    def close(self) -> None:
        with ExitStack() as closing:
            for task in reversed(self._tasks):
                closing.callback(task.close)

    def emit(self, node: Node, record: Record) -> None:
        match node.operator:
            case Repartition() as cut:
                if record.key is None and not cut.keeps_null_keys:
                    self._count("null key")
                    return
                topic = cut.topic
                offset = self._offsets.get(topic, 0)
                self._offsets[topic] = offset + 1
                self._enqueue(node, _through(cut, record), Origin(topic, 0, offset, record.timestamp))
            case Sink() as sink:
                key, value = record.key, record.value
                topic = topic_of(sink, record)
                raw_key = None if key is None else (sink.key or natural).serialize(topic, key)
                raw_value = None if value is None else (sink.value or natural).serialize(topic, value)
                # Functions behind may change the value in place.
                sent = Record(_own(key), _own(value), record.timestamp, record.headers)
                self._emitted(Emitted(topic, sent, raw_key, raw_value))

    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None:
        letter = letter_of(topic, record, origin, error)
        given = record.value.new if isinstance(record.value, Change) else record.value
        sent = Record(_own(record.key), _own(given), record.timestamp, letter.headers)
        self._emitted(Emitted(topic, sent, letter.key, letter.value))

    def _enqueue(self, node: Node, record: Record, origin: Origin) -> None:
        self._queued += 1
        self._queues.setdefault((node.name, origin.topic), deque()).append((self._queued, node, record, origin))

    def _run(self) -> None:
        queues = self._queues
        while queues:
            # The earliest head comes first, as in a task; of those, the one that has waited longest.
            place = min(queues, key=lambda place: (queues[place][0][2].timestamp, queues[place][0][0]))
            number, node, record, origin = queues[place].popleft()
            if not queues[place]:
                del queues[place]
            self._take(number, node, record, origin)

    def _take(self, number: int, node: Node, record: Record, origin: Origin) -> None:
        self._readers[node.name].process(node.name, record, origin)

    def _emitted(self, found: Emitted) -> None:
        self.outputs.append(found)
        if found.topic in self._inputs:
            # Its turn comes when the record in hand is at the end of every path.
            offset, record = self._offsets.get(found.topic, 0), found.record
            self._put(Origin(found.topic, 0, offset, record.timestamp, record.headers), found.key, found.value)

    def _add_dead_letter(self, letter: DeadLetter) -> None:
        record = Record(letter.key, letter.value, letter.timestamp, letter.headers)
        self._emitted(Emitted(letter.topic, record, letter.key, letter.value))

    def _count(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def _map(self, number: int, name: str) -> OrderedMap:
        found = self.maps.get((number, name))
        if found is None:
            found = self.maps[number, name] = self._new_map(name)
        return found

    def _new_map(self, name: str) -> OrderedMap:
        return OrderedMap()


def _own(value: Any) -> Any:
    copy = copier_of(value)
    return value if copy is None else copy(value)


def _through(cut: Repartition, record: Record) -> Record:
    """Returns a record as it comes out of the internal topic: written and read again by its serdes."""

    def again(serde: Serde, given: Any) -> Any:
        return None if given is None else serde.deserialize(cut.topic, serde.serialize(cut.topic, given))

    key, value = again(cut.key, record.key), record.value
    if cut.is_change:
        value = Change(again(cut.value, value.new), again(cut.value, value.old))
    else:
        value = again(cut.value, value)
    return Record(key, value, record.timestamp, record.headers)
