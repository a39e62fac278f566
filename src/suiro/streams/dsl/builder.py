"""`StreamsBuilder`, the start of a topology: opens streams and tables, and builds the topology."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from suiro.streams import serdes
from suiro.streams.dsl.checks import CoPartitioned, check_topology, inputs_above, is_policy, python_function
from suiro.streams.dsl.graph import Graph
from suiro.streams.dsl.kstream import KStream
from suiro.streams.dsl.ktable import GlobalKTable, KTable, add_table
from suiro.streams.dsl.named import Consumed, Materialized, Name, name_of, options_of
from suiro.streams.dsl.registries import with_serdes_placed
from suiro.streams.errors import TopologyError
from suiro.streams.serdes import Serde
from suiro.streams.topology import nodes
from suiro.streams.topology.topology import Topology


class StreamsBuilder:
    """Builds one topology.

    >>> builder = StreamsBuilder()
    >>> builder.stream("flights", value=serdes.json).filter(lambda key, flight: flight["delay"] > 15).to("late")
    >>> topology = builder.build()
    >>> topology.source_topics
    ('flights',)
    """

    def __init__(self, *, key: Serde = serdes.bytes, value: Serde = serdes.bytes) -> None:
        """`key` and `value` read the topics that say nothing of their own."""
        self._graph = Graph()
        self._key = key
        self._value = value

    def stream(
        self,
        topics: str | Iterable[str],
        consumed: Consumed | None = None,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp: Any = None,
        name: Name = None,
        on_deserialization_error: str | None = None,
    ) -> KStream:
        """Reads one topic or several as a stream.

        `timestamp`: an extractor, see `extractors`. `on_deserialization_error`: "fail", "skip" or
        "dead-letter:<topic>"; if it is not given, the application decides.

        >>> flights = builder.stream("flights", key=serdes.string, value=serdes.json)
        """
        several = topics if isinstance(topics, Iterable) and not isinstance(topics, str) else (topics,)
        source, given = self._source(several, consumed, key, value, timestamp, name, on_deserialization_error)
        node = self._graph.add_processor("KSTREAM-SOURCE-", given, source, [])
        return KStream(self._graph, node, key=source.key, value=source.value)

    def table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp: Any = None,
        materialized: Materialized | None = None,
        name: Name = None,
        on_deserialization_error: str | None = None,
    ) -> KTable:
        """Reads a topic as a table: a key's last record is its row, a null value deletes it. A record without a key is
        left out.

        >>> prices = builder.table("prices", key=serdes.string, value=serdes.double)
        >>> results(prices, prices=[("tea", 2.5, 0), (None, 9.0, 1), ("tea", None, 2)])
        [('tea', 2.5, 0), ('tea', None, 2)]
        """
        graph = self._graph
        source, given = self._source(
            (topic,), consumed, key, value, timestamp, name, on_deserialization_error, materialized
        )
        store = "" if materialized and materialized.name else graph.names.store(f"{topic}-")
        above = graph.names.processor("KSTREAM-SOURCE-", given, "-source")
        node = graph.names.processor("KTABLE-SOURCE-", given)
        graph.add(above, source, named=given is not None)
        return add_table(
            graph,
            node,
            nodes.TableSource(store=None),
            [above],
            key=source.key,
            value=source.value,
            materialized=materialized,
            reserved=store,
            logged=True,
            named=given is not None,
        )

    def global_table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp: Any = None,
        materialized: Materialized | None = None,
        name: Name = None,
        on_deserialization_error: str | None = None,
    ) -> GlobalKTable:
        """Reads a topic as a table of which every task has all rows: joins need no common key and no repartition.

        Joins use its current rows, whatever their timestamps. Raises `TopologyError` if it is to be versioned.

        >>> names = builder.global_table("names", key=serdes.string, value=serdes.string)
        >>> named = delays.join(names, lambda carrier, minutes: carrier, lambda minutes, name: [name, minutes])
        >>> results(named, names=[("UA", "United", 9)], delays=[("UA", 3, 1)])
        [('UA', ['United', 3], 1)]
        """
        graph = self._graph
        source, given = self._source(
            (topic,), consumed, key, value, timestamp, name, on_deserialization_error, materialized
        )
        if materialized is not None and materialized.history_ms is not None:
            raise TopologyError(f"the global table of {topic!r} cannot be versioned; use Materialized.as_")
        user_store = None if materialized is None else materialized.name
        store = user_store or graph.names.store(f"{topic}-")
        above = graph.names.processor("KSTREAM-SOURCE-", given, "-source")
        node = graph.names.processor("KTABLE-SOURCE-", given)
        graph.add(above, source, named=given is not None)
        graph.add_store(store, "global", source.key, source.value, logged=False, named_by_user=user_store is not None)
        graph.add(node, nodes.GlobalTableSource(store=store), [above], named=given is not None)
        return GlobalKTable(graph, node, store, key=source.key, value=source.value)

    def add_state_store(
        self, name: str, *, key: Serde | None = None, value: Serde | None = None, logged: bool = True
    ) -> StreamsBuilder:
        """A key-value store for processors: `stream.process(supplier, "seen")`. Raises `TopologyError` if there is one
        of this name.

        >>> builder.add_state_store("seen", key=serdes.string, value=serdes.long) is builder
        True
        """
        self._graph.add_store(name, "key-value", key, value, logged=logged, named_by_user=True)
        return self

    def build(self) -> Topology:
        """The topology so far. Raises `TopologyError` if it cannot work.

        >>> delays.to("copies")
        >>> print(builder.build().describe())  # doctest: +ELLIPSIS
        Topologies:
           Sub-topology: 0
        ...
        """
        built = _with_shared_sources(list(self._graph.nodes.values()))
        built = with_keys_that_meet(_with_null_keys_kept(built))
        topology = with_serdes_placed(Topology(tuple(built), tuple(self._graph.stores.values())))
        check_topology(topology)
        return topology

    def _source(
        self,
        topics: Iterable[Any],
        consumed: Consumed | None,
        key: Serde | None,
        value: Serde | None,
        timestamp: Any,
        name: Name,
        on_error: str | None,
        materialized: Materialized | None = None,
    ) -> tuple[nodes.Source, str | None]:
        """Returns a source, and the name that the user gave to it."""
        consumed = options_of(consumed, Consumed)
        stored = options_of(materialized, Materialized)
        timestamp = timestamp or consumed.timestamp
        names: tuple[Any, ...] = tuple(topics)
        for topic in names:
            if not isinstance(topic, str) or not topic:
                raise TopologyError(f"a topic is {topic!r}; give its name, or a list of names")
        extract = getattr(timestamp, "extract", timestamp)
        what = f"the timestamp extractor of {', '.join(names)}"
        if isinstance(timestamp, type) or not (extract is None or callable(extract)):
            raise TopologyError(
                f"{what} is {timestamp!r}; give a function (record, partition_time) -> ms, or an object such as "
                "WallclockTimestampExtractor()"
            )
        if extract is not None:
            python_function(extract, what, "record", "partition_time")
        if not names:
            raise TopologyError("a source reads no topics; give at least one")
        if on_error is not None and not is_policy(on_error):
            raise TopologyError(
                f'on_deserialization_error is {on_error!r}; give "fail", "skip" or "dead-letter:<topic>"'
            )
        source = nodes.Source(
            topics=tuple(sorted(set(names))),
            key=key or consumed.key or stored.key or self._key,
            value=value or consumed.value or stored.value or self._value,
            timestamp=timestamp,
            on_deserialization_error=on_error,
        )
        return source, name_of(name) or consumed.name


def _with_shared_sources(built: list[nodes.Node]) -> list[nodes.Node]:
    """A topic is read once: streams of the same topics share the first one's source, anything else is refused."""
    first: dict[str, nodes.Node] = {}
    instead: dict[str, str] = {}
    feeds_table = {
        node.parents[0] for node in built if isinstance(node.operator, nodes.TableSource | nodes.GlobalTableSource)
    }
    for node in built:
        if not isinstance(node.operator, nodes.Source):
            continue
        others = {first[topic].name: first[topic] for topic in node.operator.topics if topic in first}
        for other in others.values():
            if other.operator != node.operator or {other.name, node.name} & feeds_table:
                topic = next(topic for topic in node.operator.topics if topic in first)
                raise TopologyError(
                    f"topic {topic!r} is read by {other.name} and again, in another way, by {node.name}; read it once "
                    "and use that stream twice (to_table() makes a table of it)"
                )
            instead[node.name] = other.name
        for topic in node.operator.topics:
            first.setdefault(topic, node)
    return [
        replace(node, parents=tuple(instead.get(parent, parent) for parent in node.parents))
        for node in built
        if node.name not in instead
    ]


def _with_null_keys_kept(built: list[nodes.Node]) -> list[nodes.Node]:
    """Records without a key survive a repartition above a join that would have kept them (KIP-962)."""
    wanted: set[str] = set()
    found: list[nodes.Node] = []
    for node in reversed(built):
        match node.operator:
            case (
                nodes.StreamStreamJoin(join="left" | "outer")
                | nodes.StreamTableJoin(join="left")
                | nodes.StreamGlobalTableJoin(join="left")
            ):
                wanted.update(node.parents)
            # A table's changes and a foreign-key join's messages, which have fewer aliases, always have keys.
            case nodes.Repartition() if node.name in wanted and len(node.aliases) == 3:
                node = replace(node, operator=replace(node.operator, keeps_null_keys=True))
        if node.name in wanted:
            wanted.update(node.parents)
        found.append(node)
    return found[::-1]


def with_keys_that_meet(built: list[nodes.Node]) -> list[nodes.Node]:
    """Where records meet by key, all sides were cut into partitions by the same bytes.

    A side that came through a repartition with keys of an unknown serde is written with the other side's. Otherwise
    equal keys would be in different partitions, and never be found together.
    """
    by_name = {node.name: node for node in built}
    agreed = True
    while agreed:
        agreed = False
        for node in built:
            if len(node.parents) < 2 or not isinstance(node.operator, CoPartitioned):
                continue
            above = [side for parent in node.parents for side in inputs_above(by_name.__getitem__, parent)]
            sides = {side.name: side for side in above}
            keys = [
                side.operator.key
                for side in sides.values()
                if isinstance(side.operator, nodes.Source | nodes.Repartition) and side.operator.key != serdes.tagged
            ]
            for side in sides.values():
                if keys and isinstance(side.operator, nodes.Repartition) and side.operator.key == serdes.tagged:
                    by_name[side.name] = replace(side, operator=replace(side.operator, key=keys[0]))
                    agreed = True
    return [by_name[node.name] for node in built]
