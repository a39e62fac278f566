"""Divides a sub-topology into units that run over blocks. A pure function of the topology.

A unit is one operator with a block form (a step), or an island: operators that go record by record, depth first, as in
the interpreter. Islands are

- operators without a block form, each for itself;
- operators that share a store which is written: each record must see what those before it left there (but see
  `_pairs_of` for joins with a table);
- processors and all below them: a processor may change what it forwarded, or give the same object again;
- what lies between operators of an island.

Units are in depth-first order, parents first. Paths from the inputs are numbered depth first (`next_visit`), so that
rows that come by several are put in the interpreter's order again. Where there are more than
`PATHS_MAX` of them, the whole sub-topology is one island.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeVar

from suiro.streams.topology.nodes import (
    Node,
    Process,
    Repartition,
    Sink,
    StreamAggregate,
    StreamTableJoin,
    TableAggregate,
    TableFilter,
    TableMapValues,
    TableSource,
)
from suiro.streams.topology.topology import SubTopology, Topology, stores_of

T = TypeVar("T")

PATHS_MAX = 2048
"""Paths from inputs to operators, all together."""


@dataclass(frozen=True, slots=True)
class Edge:
    """The way from a node or an input to a child. `next_visit`: maps the number of a path to the parent to the number
    of the path to the child. 0 is no path; it maps to any of them."""

    child: str
    port: int
    unit: int
    next_visit: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Unit:
    """`why`: the reason why the unit is an island; empty for a step."""

    nodes: tuple[str, ...]
    why: str = ""

    @property
    def is_island(self) -> bool:
        return bool(self.why)


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """`inputs`: the edges from each input. A record comes in by path 0."""

    units: tuple[Unit, ...]
    unit_of: dict[str, int]
    edges: dict[str, tuple[Edge, ...]]
    inputs: dict[str, tuple[Edge, ...]]


@dataclass(slots=True)
class _Group:
    nodes: list[str]
    why: list[str] = field(default_factory=list)


def plan_of(topology: Topology, sub: SubTopology, has_step: Callable[[Node, bool], bool]) -> BlockPlan:
    """`has_step(node, has_several_ports)`: whether the node's operator has a block form."""
    children = _children(topology, sub)
    inputs = {
        node.name: _children_of_input(topology, sub, node)
        if isinstance(node.operator, Repartition)
        else [(node.name, 0)]
        for node in sub.inputs
    }
    visits = _Visits(children, inputs)
    if visits.is_complete:
        groups = _groups(sub, children, inputs, has_step)
    else:
        groups = [_Group([node.name for node in sub.nodes], [f"more than {PATHS_MAX} paths lead through it"])]
        visits = _Visits(children, inputs, is_flat=True)
    units = _in_order(sub, children, inputs, groups)
    unit_of = {name: index for index, unit in enumerate(units) for name in unit.nodes}

    def edges(ways: list[tuple[str, int]], numbers: Callable[[int], dict[int, int]]) -> tuple[Edge, ...]:
        return tuple(Edge(child, port, unit_of[child], numbers(place)) for place, (child, port) in enumerate(ways))

    return BlockPlan(
        units=units,
        unit_of=unit_of,
        edges={name: edges(ways, partial(visits.way, name)) for name, ways in children.items()},
        inputs={name: edges(ways, partial(visits.entry, name)) for name, ways in inputs.items()},
    )


def _children_of_input(topology: Topology, sub: SubTopology, node: Node) -> list[tuple[str, int]]:
    inside = {each.name for each in sub.nodes}
    return _together((child.name, port) for child, port in topology.children(node.name) if child.name in inside)


def _children(topology: Topology, sub: SubTopology) -> dict[str, list[tuple[str, int]]]:
    """Returns the children of each node in the order in which a record goes to them. The children of a repartition
    belong to another task."""
    inside = {each.name for each in sub.nodes}
    found: dict[str, list[tuple[str, int]]] = {}
    for node in sub.nodes:
        ways = [] if isinstance(node.operator, Sink | Repartition) else topology.children(node.name)
        below = [(child, port) for child, port in ways if child.name in inside]
        # Changes that wake nothing go first: so they come to a stream-table join before all that the change sets off.
        below.sort(key=lambda way: not (isinstance(way[0].operator, StreamTableJoin) and way[1] == 1))
        found[node.name] = _together((child.name, port) for child, port in below)
    return found


def _together(ways: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Sorts the ports of each child next to each other, as `Task` does."""
    found: dict[str, list[tuple[str, int]]] = {}
    for child, port in ways:
        found.setdefault(child, []).append((child, port))
    return [way for ways in found.values() for way in ways]


class _Visits:
    """The tree of all paths, numbered depth first. The numbers are those of visits; 0 is a record before it enters."""

    def __init__(
        self,
        children: dict[str, list[tuple[str, int]]],
        inputs: dict[str, list[tuple[str, int]]],
        *,
        is_flat: bool = False,
    ) -> None:
        """`is_flat`: all paths have the same number, because rows need not be put in order."""
        self.is_complete = True
        self._ways: dict[tuple[str, int], dict[int, int]] = {}
        self._entries: dict[tuple[str, int], dict[int, int]] = {}
        self._is_flat = is_flat
        if is_flat:
            return
        waiting = [
            (self._entries.setdefault((name, place), {}), 0, child)
            for name, ways in inputs.items()
            for place, (child, _) in enumerate(ways)
        ]
        waiting.reverse()
        number = 0
        while waiting:
            numbers, visit, name = waiting.pop()
            number += 1
            if number > PATHS_MAX:
                self.is_complete = False
                return
            numbers[visit] = number
            below = [
                (self._ways.setdefault((name, place), {}), number, child)
                for place, (child, _) in enumerate(children[name])
            ]
            waiting += reversed(below)

    def way(self, name: str, place: int) -> dict[int, int]:
        if self._is_flat:
            return {0: 0}
        found = self._ways.get((name, place), {})
        return {0: min(found.values(), default=0), **found}

    def entry(self, name: str, place: int) -> dict[int, int]:
        return {0: 0} if self._is_flat else self._entries[name, place]


def _groups(
    sub: SubTopology,
    children: dict[str, list[tuple[str, int]]],
    inputs: dict[str, list[tuple[str, int]]],
    has_step: Callable[[Node, bool], bool],
) -> list[_Group]:
    group = {node.name: _Group([node.name]) for node in sub.nodes}
    unite = partial(_unite, group)
    ports: dict[str, set[int]] = {}
    for child, port in chain(*children.values(), *inputs.values()):
        ports.setdefault(child, set()).add(port)
    for node in sub.nodes:
        if not has_step(node, len(ports.get(node.name, ())) > 1):
            unite([node.name], f"{type(node.operator).__name__} has no block form")
    joined: list[tuple[str, str, str]] = []
    for spec in sub.stores:
        users = [node for node in sub.nodes if spec.name in stores_of(node)]
        if len(users) > 1:
            pairs = _pairs_of(spec.name, users)
            if pairs is None:
                unite([node.name for node in users], f"they share store {spec.name}")
            else:
                joined += [(spec.name, writer, reader) for writer, reader in pairs]
    processors = [node.name for node in sub.nodes if isinstance(node.operator, Process)]
    below = _reached(processors, {name: [child for child, _ in ways] for name, ways in children.items()})
    if len(below) > 1:
        unite(list(below), "a processor may change what it forwarded")
    while True:
        circle = _circle(sub, children, group)
        if circle is not None:
            unite(circle, "they lie between operators of one island")
            continue
        # A join that goes record by record reads the store as it is, so it goes with who writes it.
        apart = [
            (store, writer, reader)
            for store, writer, reader in joined
            if group[reader].why and group[reader] is not group[writer]
        ]
        if not apart:
            break
        for store, writer, reader in apart:
            unite([writer, reader], f"they share store {store}")
    order = {node.name: place for place, node in enumerate(sub.nodes)}
    found = {id(each): each for each in group.values()}
    for each in found.values():
        each.nodes.sort(key=order.__getitem__)
    return list(found.values())


def _pairs_of(store: str, users: Sequence[Node]) -> list[tuple[str, str]] | None:
    """Returns the writer and the reader of the store, for each reader; None if the users of the store must be an
    island.

    Joins may run over blocks although another operator writes their table: if this is a table's operator that sends one
    change for each row that it writes, and the join gets these changes. The join can then tell which row each of its
    records must find (`table_rows`).
    """
    writing = TableSource | TableFilter | TableMapValues | StreamAggregate | TableAggregate
    writers = [node for node in users if getattr(node.operator, "store", None) == store]
    if len(writers) != 1 or not isinstance(writers[0].operator, writing):
        return None
    writer = writers[0]
    readers = [node for node in users if node is not writer]
    if not all(isinstance(node.operator, StreamTableJoin) and node.parents[1] == writer.name for node in readers):
        return None
    return [(writer.name, reader.name) for reader in readers]


def _unite(group: dict[str, _Group], names: list[str], why: str) -> None:
    first = group[names[0]]
    for name in names[1:]:
        other = group[name]
        if other is not first:
            first.nodes += other.nodes
            first.why += other.why
            for each in other.nodes:
                group[each] = first
    first.why.append(why)


def _circle(sub: SubTopology, children: dict[str, list[tuple[str, int]]], group: dict[str, _Group]) -> list[str] | None:
    """Returns the nodes of groups that lie on a way from a group back to itself; None if there is no such way."""
    ways: dict[int, set[int]] = {}
    for node in sub.nodes:
        for child, _ in children[node.name]:
            if group[child] is not group[node.name]:
                ways.setdefault(id(group[node.name]), set()).add(id(group[child]))
    reach = {start: _reached(found, ways) for start, found in ways.items()}
    for start, found in reach.items():
        if start in found:
            on_way = {start} | {each for each in found if start in reach.get(each, ())}
            return [node.name for node in sub.nodes if id(group[node.name]) in on_way]
    return None


def _reached(starts: Iterable[T], ways: Mapping[T, Iterable[T]]) -> dict[T, None]:
    """Returns these and everything that can be reached from them."""
    found: dict[T, None] = {}
    waiting = list(starts)
    while waiting:
        each = waiting.pop()
        if each not in found:
            found[each] = None
            waiting += ways.get(each, ())
    return found


def _in_order(
    sub: SubTopology,
    children: dict[str, list[tuple[str, int]]],
    inputs: dict[str, list[tuple[str, int]]],
    groups: list[_Group],
) -> tuple[Unit, ...]:
    """Sorts units depth first: all units below a unit come before the units below its next sibling, unless they wait
    for these."""
    group_of = {name: index for index, group in enumerate(groups) for name in group.nodes}
    done: dict[int, None] = {}

    def ways_on(index: int) -> list[int]:
        ways = [group_of[child] for name in groups[index].nodes for child, _ in children[name]]
        return [each for each in dict.fromkeys(ways) if each != index]

    def visit(index: int) -> None:
        waiting: list[tuple[int, list[int]]] = [(index, ways_on(index))]
        begun.add(index)
        while waiting:
            at, ways = waiting[-1]
            if ways:
                child = ways.pop()  # the last one first: the order is turned round at the end
                if child not in begun:
                    begun.add(child)
                    waiting.append((child, ways_on(child)))
            else:
                done[at] = None
                waiting.pop()

    begun: set[int] = set()
    starts = [group_of[child] for ways in inputs.values() for child, _ in ways]
    for index in (*reversed(list(dict.fromkeys(starts))), *range(len(groups))):
        if index not in begun:
            visit(index)
    return tuple(
        Unit(tuple(groups[index].nodes), ", and ".join(dict.fromkeys(groups[index].why))) for index in reversed(done)
    )
