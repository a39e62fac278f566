"""Where records of other keys can be left out, when only some rows of a view are asked for.

Upwards from the view's output, as long as every operator keeps the key, a row is made only of records with its own key.
The re-key points are the upper ends of that stretch: records with other keys can be dropped there. Operators above a
re-key point run in full. Stream time is the exception: records of other keys advance it, and that closes windows.
`sees_time` is true if an operator below a re-key point reads stream time; a caller that drops records must then check
the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from suiro.streams.topology import nodes
from suiro.streams.topology.topology import Topology, stores_of

_KEEPS_KEY = (
    nodes.Branch
    | nodes.Filter
    | nodes.FlatMapValues
    | nodes.ForeignKeyResolve
    | nodes.MapValues
    | nodes.MapBatches
    | nodes.Merge
    | nodes.Peek
    | nodes.Repartition
    | nodes.Sink
    | nodes.Source
    | nodes.StreamAggregate
    | nodes.StreamGlobalTableJoin
    | nodes.StreamStreamJoin
    | nodes.StreamTableJoin
    | nodes.Suppress
    | nodes.TableAggregate
    | nodes.TableFilter
    | nodes.TableMapValues
    | nodes.TableSource
    | nodes.TableTableJoin
    | nodes.ToStream
)
_WINDOWED = nodes.TimeWindowAggregate | nodes.SlidingAggregate | nodes.SessionAggregate
"""They keep the key as a part of the windowed one, which further aggregations would group by another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RekeyPoints:
    """`nodes`: names; none where nothing can be left out. `is_windowed`: the row's key has a window, the records' has
    none. `above_is_stateless`: of the records that a row comes from, all pass a re-key point or fill a global table."""

    nodes: frozenset[str] = frozenset()
    is_windowed: bool = False
    sees_time: bool = False
    above_is_stateless: bool = False


def rekey_points_of(topology: Topology, sink: str) -> RekeyPoints:
    """`sink`: name of the node that writes the view's rows."""
    below: dict[str, nodes.Node] = {}
    tops: set[str] = set()
    pending = [topology.node(sink)]
    while pending:
        node = pending.pop()
        if node.name in below:
            continue
        below[node.name] = node
        parents = [topology.node(name) for name in node.parents]
        if not parents or isinstance(node.operator, nodes.GlobalTableSource):
            tops.add(node.name)
        for parent in parents:
            if _keeps_key(parent):
                pending.append(parent)
            else:
                tops.add(node.name)
    windowed = [node for node in below.values() if isinstance(node.operator, _WINDOWED)]
    above = _ancestors(topology, tops)
    if len(windowed) > 1 or above & below.keys() or topology.node(sink).name in tops:
        # A second window, or a path around the re-key points that joins below them: nothing can be dropped.
        return RekeyPoints(sees_time=True)
    stateful_above = any(_is_stateful(topology.node(name)) for name in above)
    return RekeyPoints(
        nodes=frozenset(tops),
        is_windowed=bool(windowed),
        sees_time=any(_sees_time(topology, node) for node in below.values()),
        above_is_stateless=not stateful_above,
    )


def _keeps_key(node: nodes.Node) -> bool:
    operator = node.operator
    if isinstance(operator, nodes.AsyncCall):
        return operator.kind != "map"
    return isinstance(operator, _KEEPS_KEY | _WINDOWED)


def _is_stateful(node: nodes.Node) -> bool:
    if isinstance(node.operator, nodes.Process):
        return True  # it may remember what it likes
    return bool(stores_of(node)) and not isinstance(node.operator, nodes.StreamGlobalTableJoin)


def _ancestors(topology: Topology, names: set[str]) -> set[str]:
    found: set[str] = set()
    pending = [parent for name in names for parent in topology.node(name).parents]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(topology.node(name).parents)
    return found


def _sees_time(topology: Topology, node: nodes.Node) -> bool:
    match node.operator:
        case nodes.TableSource(versioned=versioned) | nodes.StreamTableJoin(versioned=versioned):
            return versioned
        case nodes.Suppress() | nodes.StreamStreamJoin():
            return True
    return isinstance(node.operator, _WINDOWED)
