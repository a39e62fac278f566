"""A whole topology: nodes and stores by name, in the order they were built, and its sub-topologies.

A sub-topology is what one task runs: nodes connected with each other, cut at every `Repartition`, which is the sink of
the one above and the source of the one below. Global tables belong to every sub-topology that joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from suiro.streams.errors import TopologyError
from suiro.streams.topology.nodes import (
    ForeignKeyResolve,
    GlobalTableSource,
    Node,
    Process,
    Repartition,
    Sink,
    Source,
    StoreSpec,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubTopology:
    """`inputs` are its `Source` and (as a reader) `Repartition` nodes; `outputs` its `Sink`s and `Repartition`s.

    `nodes` holds everything in between too, parents before children; a `Repartition` that it reads is not among them.
    """

    number: int
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    stores: tuple[StoreSpec, ...]
    global_tables: tuple[str, ...] = ()

    @property
    def is_stateful(self) -> bool:
        return bool(self.stores or self.global_tables) or any(isinstance(node.operator, Process) for node in self.nodes)


@dataclass(frozen=True)
class Topology:
    """Built by `StreamsBuilder.build()`, which has checked it."""

    nodes: tuple[Node, ...]
    stores: tuple[StoreSpec, ...] = ()
    _by_name: dict[str, Node] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name.update((node.name, node) for node in self.nodes)

    def node(self, name: str) -> Node:
        return self._by_name[name]

    def store(self, name: str) -> StoreSpec:
        return next(spec for spec in self.stores if spec.name == name)

    def children(self, name: str) -> list[tuple[Node, int]]:
        """Returns the children of a node and the port by which each takes its records, in the order they were built."""
        return [(node, port) for node in self.nodes for port, parent in enumerate(node.parents) if parent == name]

    @property
    def source_topics(self) -> tuple[str, ...]:
        found = [topic for node in self.nodes if isinstance(node.operator, Source) for topic in node.operator.topics]
        return tuple(dict.fromkeys(found))

    @property
    def sink_topics(self) -> tuple[str, ...]:
        found = [
            node.operator.topic
            for node in self.nodes
            if isinstance(node.operator, Sink) and isinstance(node.operator.topic, str)
        ]
        return tuple(dict.fromkeys(found))

    @cached_property
    def sub_topologies(self) -> tuple[SubTopology, ...]:
        """The sub-topologies that tasks run."""
        return tuple(_sub_topologies(self, stores_of))

    @cached_property
    def described_sub_topologies(self) -> tuple[SubTopology, ...]:
        """The sub-topologies of Kafka Streams, where a foreign-key join ends in the task of its left table."""
        return tuple(_sub_topologies(self, _described_stores_of))

    def describe(self, style: str = "text") -> str:
        """As Kafka Streams prints it; `"mermaid"`: a picture."""
        from suiro.streams.topology.describe import describe

        return describe(self, style)


def in_order(topology: Topology) -> list[SubTopology]:
    """Returns each sub-topology after those that write what it reads. Raises `TopologyError` if a path returns to a
    sub-topology that it left: within a micro-batch, none of them could run first."""
    subs = topology.sub_topologies
    writers = _writers(topology)
    if loop := loop_of(topology):
        members = {sub.number for sub in loop}
        names = [node.name for sub in loop for node in sub.inputs if writers.get(node.name) in members]
        raise TopologyError(
            f"records that pass {', '.join(names)} come back to where they were: a path leads through a "
            "repartition into its own sub-topology. Write to a topic and read it again where the path comes back"
        )
    return [subs[number] for number in TopologicalSorter(_above(topology)).static_order()]


def loop_of(topology: Topology) -> list[SubTopology]:
    """Returns sub-topologies of which each reads what all others write, directly or through others; none if there is no
    loop."""
    above = _above(topology)
    try:
        TopologicalSorter(above).prepare()
    except CycleError as error:
        start = error.args[1][0]
        return [sub for sub in topology.sub_topologies if _meet(above, start, sub.number)]
    return []


def _meet(above: dict[int, list[int]], one: int, other: int) -> bool:
    """Whether paths lead from each to the other."""
    return other in _reached(above, one) and one in _reached(above, other)


def _reached(above: dict[int, list[int]], start: int) -> set[int]:
    found: set[int] = set()
    waiting = [*above[start]]
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += above[number]
    return found


def _above(topology: Topology) -> dict[int, list[int]]:
    """Returns the numbers of the sub-topologies that write what each one reads."""
    writers = _writers(topology)
    return {
        sub.number: [writers[node.name] for node in sub.inputs if isinstance(node.operator, Repartition)]
        for sub in topology.sub_topologies
    }


def _writers(topology: Topology) -> dict[str, int]:
    return {node.name: sub.number for sub in topology.sub_topologies for node in sub.outputs}


def stores_of(node: Node) -> tuple[str, ...]:
    """Returns the names of the stores that a node's rule uses: every field of its operator that names one."""
    operator = node.operator
    if isinstance(operator, ForeignKeyResolve):
        return tuple(name for name in (operator.store, operator.asked_store) if name is not None)
    if isinstance(operator, Process):
        return operator.stores
    names = (
        getattr(operator, name, None)
        for name in (
            "store",
            "left_store",
            "right_store",
            "outer_store",
            "table_store",
            "buffer_store",
            "subscription_store",
        )
    )
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


def _described_stores_of(node: Node) -> tuple[str, ...]:
    operator = node.operator
    left = (operator.left_store,) if isinstance(operator, ForeignKeyResolve) else ()
    return (*stores_of(node), *left)


def _sub_topologies(topology: Topology, stores_of: Callable[[Node], tuple[str, ...]]) -> list[SubTopology]:
    tables = {node.operator.store: node for node in topology.nodes if isinstance(node.operator, GlobalTableSource)}
    is_global = {name for node in tables.values() for name in (node.name, *node.parents)}
    cut = {node.name for node in topology.nodes if isinstance(node.operator, Repartition)}

    def links(node: Node) -> Iterator[Hashable]:
        for parent in node.parents:
            if parent not in is_global:
                yield ("reads", parent) if parent in cut else parent
        for store in stores_of(node):
            if store not in tables:
                yield "uses", store

    found = []
    nodes = [node for node in topology.nodes if node.name not in is_global]
    for number, members in enumerate(_connected(nodes, links)):
        names = {node.name for node in members}
        used = dict.fromkeys(store for node in members for store in stores_of(node))
        sources = [node for node in members if isinstance(node.operator, Source)]
        # A Repartition whose reader is in its own sub-topology (two paths that meet) is still an input of it; the last.
        read = dict.fromkeys(parent for node in members for parent in node.parents if parent in cut)
        found.append(
            SubTopology(
                number=number,
                nodes=tuple(members),
                inputs=(*sources, *map(topology.node, sorted(read, key=names.__contains__))),
                outputs=tuple(node for node in members if isinstance(node.operator, Sink | Repartition)),
                stores=tuple(topology.store(name) for name in used if name not in tables),
                global_tables=tuple(name for name in used if name in tables),
            )
        )
    return found


def _connected(nodes: Sequence[Node], links: Callable[[Node], Iterable[Hashable]]) -> list[list[Node]]:
    """Groups the nodes that have a link in common, directly or through others. A node's name is a link to it."""
    above: dict[Hashable, Hashable] = {}

    def root(link: Hashable) -> Hashable:
        while (next_link := above.setdefault(link, link)) != link:
            link = next_link
        return link

    for node in nodes:
        for link in links(node):
            above[root(node.name)] = root(link)
    found: dict[Hashable, list[Node]] = {}
    for node in nodes:
        found.setdefault(root(node.name), []).append(node)
    return list(found.values())
