"""Runs topologies on Spark in a chosen cut of their input, and says what the interpreter makes of the same.

Many topologies run as one: a micro-batch costs the same for one topology as for seventy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suiro.client import LATEST, Client, NewTopic
from suiro.protocol import columnar
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.records import Record as LogRecord
from suiro.protocol.records import encode_batch
from suiro.streams.topology.nodes import GlobalTableSource, Source
from suiro.streams.topology.topology import Topology

KEEP = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}


@dataclass(frozen=True)
class Sent:
    """A record to put into an input topic."""

    topic: str
    key: Any
    value: Any
    timestamp: int


@dataclass(frozen=True)
class Got:
    """A record of an output topic, as bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    partition: int = 0


def create_topics(client: Client, topology: Topology, partitions: int = 1) -> None:
    names = {*topology.source_topics, *topology.sink_topics}
    client.create_topics([NewTopic(name, partitions, configs=KEEP) for name in sorted(names)], exist_ok=True)


def send(client: Client, topology: Topology, records: Iterable[Sent], partitions: int = 1) -> None:
    """Keeps the order within each partition; a null key goes where its timestamp says."""
    batches: dict[tuple[str, int], list[LogRecord]] = defaultdict(list)
    for record in records:
        key, value = encoded(topology, record)
        place = partition_for_key(key, partitions) if key is not None else record.timestamp % partitions
        batch = batches[record.topic, place]
        batch.append(LogRecord(offset=len(batch), timestamp=record.timestamp, key=key, value=value))
    for place, batch in batches.items():
        client.produce({place: encode_batch(batch)})


def encoded(topology: Topology, record: Sent) -> tuple[bytes | None, bytes | None]:
    source = next(
        node.operator
        for node in topology.nodes
        if isinstance(node.operator, Source) and record.topic in node.operator.topics
    )
    key = None if record.key is None else source.key.serialize(record.topic, record.key)
    value = None if record.value is None else source.value.serialize(record.topic, record.value)
    return key, value


class Outputs:
    """Reads output topics, each record once; only what is committed."""

    def __init__(self, client: Client, topics: Sequence[str], partitions: int = 1) -> None:
        self._client = client
        self._topics = topics
        self._positions = {(topic, partition): 0 for topic in topics for partition in range(partitions)}

    def read(self) -> dict[str, list[Got]]:
        """What is new, by topic; partition after partition."""
        found: dict[str, list[Got]] = {topic: [] for topic in self._topics}
        positions = self._positions
        ends = self._client.list_offsets(dict.fromkeys(positions, LATEST), read_committed=True)
        while wanted := {place: at for place, at in positions.items() if at < ends[place].offset}:
            for (topic, partition), fetched in self._client.fetch(wanted, read_committed=True).items():
                decoded = columnar.decode(
                    fetched.data,
                    start_offset=wanted[topic, partition],
                    end_offset=ends[topic, partition].offset,
                    aborted=fetched.aborted,
                )
                positions[topic, partition] = max(decoded.next_offset, wanted[topic, partition])
                batch = decoded.batch
                columns = [batch.column(name).to_pylist() for name in ("key", "value", "timestamp")]
                found[topic] += [Got(*row, partition) for row in zip(*columns, strict=True)]
        return found


def merged(records: Sequence[Sent]) -> list[Sent]:
    """The order in which one task takes records that are all there (KIP-353): the earliest head of any topic first,
    ties by topic; each topic keeps its own order. One partition."""
    queues: dict[str, list[Sent]] = defaultdict(list)
    for record in records:
        queues[record.topic].append(record)
    found = []
    while any(queues.values()):
        topic = min((queue[0].timestamp, topic) for topic, queue in queues.items() if queue)[1]
        found.append(queues[topic].pop(0))
    return found


class Running:
    """A topology on Spark. What is in its topics before the start is one cut, or as many as a limit makes."""

    def __init__(
        self,
        spark: Any,
        topology: Topology,
        *,
        application_id: str,
        bootstrap_servers: str,
        directory: Path,
        before: Sequence[Sent] = (),
        partitions: int = 1,
        **options: Any,
    ) -> None:
        from suiro.streams import KafkaStreams

        self.topology = topology
        self._partitions = partitions
        self.client = Client(bootstrap_servers)
        create_topics(self.client, topology, partitions)
        send(self.client, topology, before, partitions)
        self.outputs = Outputs(self.client, topology.sink_topics, partitions)
        self.streams = KafkaStreams(
            topology,
            application_id=application_id,
            bootstrap_servers=bootstrap_servers,
            spark=spark,
            state_dir=directory,
            **options,
        )
        self.streams.start()

    def send(self, records: Sequence[Sent]) -> dict[str, list[Got]]:
        """What comes out of these records; they may be in several micro-batches."""
        send(self.client, self.topology, records, self._partitions)
        return self.finish()

    def finish(self) -> dict[str, list[Got]]:
        self.streams.process_all_available()
        return self.outputs.read()

    def close(self) -> None:
        self.streams.close()
        self.client.close()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def interpreted(topology: Topology, records: Sequence[Sent]) -> dict[str, list[Got]]:
    """What the interpreter gives for records that were all there, in the order a task takes them: global tables are
    filled first."""
    from suiro.streams.interpreter import Interpreter

    interpreter = Interpreter(topology)
    tables = {
        topic
        for node in topology.nodes
        if isinstance(node.operator, GlobalTableSource)
        for topic in topology.node(node.parents[0]).operator.topics  # type: ignore[union-attr]
    }
    first = [record for record in records if record.topic in tables]
    for record in first + merged([record for record in records if record.topic not in tables]):
        interpreter.pipe(record.topic, record.timestamp, *encoded(topology, record))
    found: dict[str, list[Got]] = {topic: [] for topic in topology.sink_topics}
    for item in interpreter.outputs:
        found[item.topic].append(Got(item.key, item.value, item.record.timestamp))
    return found


def by_key(records: Iterable[Got]) -> dict[bytes | None, list[tuple[bytes | None, int]]]:
    """Each key's sequence: what must be the same however keys interleave."""
    found: dict[bytes | None, list[tuple[bytes | None, int]]] = defaultdict(list)
    for record in records:
        found[record.key].append((record.value, record.timestamp))
    return dict(found)


def last_by_key(records: Iterable[Got]) -> Mapping[bytes | None, tuple[bytes | None, int]]:
    return {key: values[-1] for key, values in by_key(records).items()}


def changelog(server: str, name: str, store: str, partitions: int) -> dict[bytes | None, bytes]:
    """The rows that a store's changelog topic has: what a copy of the store holds."""
    with Client(server) as client:
        topic = f"{name}-{store}-changelog"
        rows = last_by_key(Outputs(client, [topic], partitions).read()[topic])
    # Keys of no serde have their type in front.
    return {key.removeprefix(b"s"): value for key, (value, _) in rows.items() if key and value is not None}
