"""Reads the input of a topology from the log, up to given offsets, in the order in which its pipeline processes it.

Global tables come first. Then the partition whose next record has the lowest timestamp is read next, with ties broken
by topic and partition. Each partition keeps its order. The boundaries of micro-batches do not matter.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, Protocol

import pyarrow.compute as pc

from suiro.client import EARLIEST, Client
from suiro.errors import DataLossError
from suiro.foundation.types import TopicPartition
from suiro.lineage.provenance import Place
from suiro.streams.interpreter import Interpreter
from suiro.streams.sources import SourceReader
from suiro.streams.topology.nodes import GlobalTableSource, Node, Source
from suiro.streams.topology.topology import Topology
from suiro.topic_table import batches

Header = tuple[str, bytes | None]


class InputRecord(NamedTuple):
    """As it is in the log. A tuple, because there are many."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Iterable[Header] = ()

    @property
    def place(self) -> Place:
        return self.topic, self.partition, self.offset

    def pipe(self, interpreter: Interpreter, decoded: tuple[Any, Any] | None = None) -> None:
        """`decoded`: its key and value."""
        topic, partition, offset, timestamp, key, value, headers = self
        place = partition, offset
        interpreter.pipe(topic, timestamp, key, value, tuple(headers), place=place, decoded=decoded)


class Log(Protocol):
    """The input up to a cut, to be read as often as one likes."""

    @property
    def ends(self) -> Mapping[TopicPartition, int]: ...
    def read(self, topology: Topology) -> Iterator[InputRecord]: ...


class Inputs:
    """Reads again at every `read`, so that nothing has to be held."""

    def __init__(self, client: Client, ends: Mapping[TopicPartition, int], *, may_begin_later: bool = False) -> None:
        """`ends`: nothing from there on is read. `may_begin_later`: a beginning that is gone by retention is no error,
        but noted in `begin_later`."""
        self._client = client
        self.ends: Mapping[TopicPartition, int] = dict(ends)
        self._may_begin_later = may_begin_later
        self.begin_later: dict[TopicPartition, int] = {}

    def read(self, topology: Topology) -> Iterator[InputRecord]:
        """Raises `DataLossError` where the log does not hold its beginning any more, unless `may_begin_later`."""
        ends = {place: end for place, end in self.ends.items() if place[0] in topology.source_topics and end > 0}
        listed = self._client.list_offsets(dict.fromkeys(ends, EARLIEST))
        starts = {place: item.offset for place, item in listed.items()}
        topics = sorted({topic for topic, _ in ends})
        configs = self._client.describe_configs(topics) if topics else {}
        compacted = {topic for topic, config in configs.items() if config.get("cleanup.policy") == "compact"}
        for (topic, partition), start in starts.items():
            if start > 0 and topic not in compacted:
                if self._may_begin_later:
                    self.begin_later[topic, partition] = start
                    continue
                raise DataLossError(
                    f"{topic}-{partition} begins at offset {start}: what was before is gone by retention, and "
                    "rows that come from it cannot be explained. Keep the topic for longer (retention.ms=-1) or "
                    "compact it"
                )
        tables = global_topics(topology)
        others: dict[TopicPartition, Iterator[InputRecord]] = {}
        for place in sorted(ends):
            records = self._input_partition(place, starts[place], ends[place], compacted=place[0] in compacted)
            if place[0] in tables:
                yield from records
            else:
                others[place] = records
        yield from merged(topology, others)

    def _input_partition(
        self, place: TopicPartition, position: int, end: int, *, compacted: bool
    ) -> Iterator[InputRecord]:
        topic, partition = place
        for batch in batches(self._client, place, position, end, compacted=compacted, headers=True):
            columns = [batch.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value")]
            for offset, timestamp, key, value, headers in zip(*columns, _headers(batch), strict=False):
                yield InputRecord(topic, partition, offset, timestamp, key, value, headers)


def merged(
    topology: Topology, input_partitions: Mapping[TopicPartition, Iterator[InputRecord]]
) -> Iterator[InputRecord]:
    if len(input_partitions) == 1:
        yield from next(iter(input_partitions.values()))
        return
    times = {topic: _times(topology, topic) for topic, _ in input_partitions}

    def timed(place: TopicPartition) -> Iterator[tuple[int, TopicPartition, InputRecord]]:
        time = times[place[0]]
        return ((time(record), place, record) for record in input_partitions[place])

    for _, _, record in heapq.merge(*map(timed, input_partitions), key=itemgetter(0, 1)):
        yield record


def global_topics(topology: Topology) -> set[str]:
    found: set[str] = set()
    for node in topology.nodes:
        if isinstance(node.operator, GlobalTableSource):
            source = topology.node(node.parents[0]).operator
            assert isinstance(source, Source)
            found.update(source.topics)
    return found


def source_of(topology: Topology, topic: str) -> Node | None:
    for node in topology.nodes:
        if isinstance(node.operator, Source) and topic in node.operator.topics:
            return node
    return None


def _times(topology: Topology, topic: str) -> Any:
    """Event time of a topic's records: the log's, or what the extractor says. A record that cannot be read goes by the
    log's; it is left out later, or stops all."""
    node = source_of(topology, topic)
    assert node is not None
    assert isinstance(node.operator, Source)
    if node.operator.timestamp is None:
        return attrgetter("timestamp")
    reader = SourceReader(node, on_deserialization_error="skip", drop=_ignore, dead_letter=_ignore)

    def extracted(record: InputRecord) -> int:
        found = reader.read(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple(record.headers),
        )
        return record.timestamp if found is None else found.timestamp

    return extracted


def _ignore(left_out: object) -> None: ...


@dataclass(frozen=True, slots=True)
class _Headers:
    """Of one row of a batch, made when they are asked for: most records are dropped by the pre-filter."""

    column: Any
    row: int

    def __iter__(self) -> Iterator[Header]:
        return ((item["key"], item["value"]) for item in self.column[self.row].as_py() or ())


def _headers(batch: Any) -> Iterable[Iterable[Header]]:
    headers = batch.column("headers")
    if not pc.sum(pc.list_value_length(headers)).as_py():
        return repeat(())
    return (_Headers(headers, row) for row in range(len(headers)))
