"""Topologies with a path through a repartition back into its own sub-topology: they become ones without.

Kafka Streams runs them, because a record that comes back is only another record of a topic. A micro-batch runs each
sub-topology once, after those that write what it reads. So a sub-topology of a loop is divided by depth: how many
repartitions of the loop are above a node. Where a node gives records to a deeper one, they go through one more
repartition by the same key, and a table that a deeper node joins has a copy of its rows there:

    stream -> join -> repartition -> join       stream -> join -> repartition -> join
    table ----^----------------------^          table ----^-----> repartition -> copy ^
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import fields, replace
from typing import Any

from suiro.streams.dsl.builder import with_keys_that_meet
from suiro.streams.dsl.registries import placed
from suiro.streams.records import Change
from suiro.streams.serdes import tagged
from suiro.streams.topology import nodes
from suiro.streams.topology.nodes import Node, Repartition, StoreSpec
from suiro.streams.topology.topology import SubTopology, Topology, in_order, loop_of

_OF_CHANGES = (
    *(nodes.TableSource, nodes.TableFilter, nodes.TableMapValues, nodes.TableGroupBy, nodes.TableAggregate),
    *(nodes.StreamAggregate, nodes.TimeWindowAggregate, nodes.SlidingAggregate, nodes.SessionAggregate),
    *(nodes.Suppress, nodes.TableTableJoin, nodes.ForeignKeyResolve),
)
"""Their records are the changes of a table."""


class _Indivisible(Exception):
    pass


def without_loops(topology: Topology) -> Topology:
    """Returns the topology itself if it has no loop. Raises `TopologyError` for a loop that cannot be divided: nodes at
    two depths share a store, or the table that a deeper node joins is windowed."""
    divided = topology
    try:
        # Each step moves nodes of a loop at least one repartition apart.
        for _ in topology.nodes:
            if not (loop := loop_of(divided)):
                return divided
            divided = _divided(divided, loop)
    except _Indivisible:
        pass
    in_order(topology)  # raises the error that names the loop
    return topology


def _divided(topology: Topology, loop: list[SubTopology]) -> Topology:
    written = {node.name for sub in loop for node in sub.outputs}
    cuts = {node.name for sub in loop for node in sub.inputs if node.name in written}
    members = {node.name for sub in loop for node in (*sub.inputs, *sub.nodes)}
    depths = _depths(topology, members, cuts)
    relays: dict[tuple[str, int], _Relay] = {}
    changed: dict[str, Node] = {}
    for node in topology.nodes:
        depth = depths[node.name]
        for port, parent in enumerate(node.parents):
            if {node.name, parent} <= members and parent not in cuts and depths[parent] < depth:
                relay = relays.get((parent, depth))
                if relay is None:
                    relay = relays[parent, depth] = _Relay(topology, topology.node(parent), depth)
                changed[node.name] = relay.read_by(changed.get(node.name, node), port)
    if not relays:
        raise _Indivisible
    found = []
    for node in topology.nodes:
        found.append(changed.get(node.name, node))
        found += [each for (parent, _), relay in relays.items() if parent == node.name for each in relay.nodes]
    stores = (*topology.stores, *(spec for relay in relays.values() for spec in relay.stores))
    return Topology(tuple(with_keys_that_meet(found)), stores)


def _depths(topology: Topology, members: Set[str], cuts: Set[str]) -> dict[str, int]:
    """`members`: the nodes of the loop. `cuts`: its repartitions. A node that only deeper ones read is as deep as they
    are, unless nothing can be between it and the one above it."""
    found: dict[str, int] = {}
    for node in topology.nodes:
        found[node.name] = max((found[parent] + (parent in cuts) for parent in node.parents), default=0)
    for node in reversed(topology.nodes):
        if node.name in members and node.name not in cuts:
            below = (found[child.name] for child, _ in topology.children(node.name) if child.name in members)
            found[node.name] = max(found[node.name], min(below, default=0))
    for node in topology.nodes:
        if len(node.parents) == 1 and node.name in members:
            above = topology.node(node.parents[0])
            if isinstance(above.operator, nodes.Branch | nodes.Process) or _is_table_without_copy(topology, above):
                found[node.name] = found[above.name]
    return found


def _is_table_without_copy(topology: Topology, node: Node) -> bool:
    if not isinstance(node.operator, _OF_CHANGES):
        return False
    store: str | None = getattr(node.operator, "store", None)
    return store is None or topology.store(store).kind not in ("key-value", "versioned")


class _Relay:
    """The way of a node's records to deeper ones: `nodes`, and `stores` if it is a table."""

    def __init__(self, topology: Topology, above: Node, depth: int) -> None:
        self.stores: tuple[StoreSpec, ...] = ()
        self._store: str = getattr(above.operator, "store", None) or ""
        topic = f"{above.name}-copy-{depth}-repartition"
        if not isinstance(above.operator, _OF_CHANGES):
            if isinstance(above.operator, Repartition) and above.operator.is_change:
                raise _Indivisible
            stream: Any = above.operator if isinstance(above.operator, nodes.Source | Repartition) else above
            key, value = stream.key or tagged, stream.value or tagged
            operator = Repartition(topic=topic, key=key, value=value, keeps_null_keys=True)
            self.nodes = [placed(_node(topic, above.name, operator))]
            return
        if _is_table_without_copy(topology, above):
            raise _Indivisible
        spec = topology.store(self._store)
        copy = replace(spec, name=f"{spec.name}-copy-{depth}", logged=False, named_by_user=False)
        rows, name = f"{above.name}-copy-{depth}-rows", f"{above.name}-copy-{depth}"
        self.stores = (copy,)
        self.nodes = [
            _node(rows, above.name, nodes.MapValues(mapper=_row_of)),
            _node(topic, rows, Repartition(topic=topic, key=spec.key, value=spec.value)),
            _node(name, topic, nodes.TableSource(store=copy.name, versioned=spec.kind == "versioned")),
        ]

    def read_by(self, node: Node, port: int) -> Node:
        parents = (*node.parents[:port], self.nodes[-1].name, *node.parents[port + 1 :])
        operator: Any = node.operator
        for spec in self.stores:
            own = {each.name: spec.name for each in fields(operator) if getattr(operator, each.name) == self._store}
            operator = replace(operator, **own)
        return replace(node, parents=parents, operator=operator)


def _node(name: str, parent: str, operator: nodes.Operator) -> Node:
    aliases = (f"{name}-sink", f"{name}-source") if isinstance(operator, Repartition) else ()
    return Node(name=name, parents=(parent,), operator=operator, aliases=aliases)


def _row_of(change: Change) -> Any:
    return change.new
