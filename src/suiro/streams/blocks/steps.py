"""The operators with a block form, and their classes, the steps. The others run by their rules, record by record.

A step has `process(block, port)`, or `process_ports(deliveries)`, which takes the blocks of all its ports at once, each
with its port, and must regard their order (`order.ranks`). It forwards through its context. A step may have
`end_of_batch()`, as rules have.
"""

from __future__ import annotations

from typing import Any

from suiro.streams.blocks import aggregates, joins, stateless, table
from suiro.streams.blocks.context import BlockContext
from suiro.streams.operators.stateless import PassOn
from suiro.streams.topology import nodes
from suiro.streams.topology.topology import Topology

_ANY_PORT: dict[type, Any] = {nodes.Source: PassOn, nodes.Merge: PassOn}
_ONE_PORT: dict[type, Any] = {
    nodes.Filter: stateless.FilterStep,
    nodes.Map: stateless.MapStep,
    nodes.MapValues: stateless.MapValuesStep,
    nodes.FlatMap: stateless.FlatMapStep,
    nodes.FlatMapValues: stateless.FlatMapValuesStep,
    nodes.SelectKey: stateless.SelectKeyStep,
    nodes.Peek: stateless.PeekStep,
    nodes.Branch: stateless.BranchStep,
    nodes.AsyncCall: stateless.CalledStep,
    nodes.MapBatches: stateless.CalledStep,
    nodes.StreamAggregate: aggregates.StreamAggregateStep,
    nodes.TimeWindowAggregate: aggregates.WindowedAggregateStep,
    nodes.SessionAggregate: aggregates.WindowedAggregateStep,
    nodes.StreamGlobalTableJoin: joins.StreamGlobalTableJoinStep,
    nodes.TableSource: table.TableSourceStep,
    nodes.TableFilter: table.TableStep,
    nodes.TableMapValues: table.TableStep,
    nodes.ToStream: table.ToStreamStep,
    nodes.TableGroupBy: aggregates.TableGroupByStep,
    nodes.TableAggregate: aggregates.TableAggregateStep,
}
_SEVERAL_PORTS: dict[type, Any] = {
    nodes.StreamTableJoin: joins.StreamTableJoinStep,
    nodes.StreamStreamJoin: joins.StreamStreamJoinStep,
}


def has_step(topology: Topology, node: nodes.Node, has_several_ports: bool) -> bool:
    kind = type(node.operator)
    if kind in _ANY_PORT or kind in (nodes.Sink, nodes.Repartition, nodes.StreamStreamJoin):
        return True
    if isinstance(node.operator, nodes.StreamTableJoin):
        return node.operator.buffer_store is None and topology.store(node.operator.table_store).kind == "key-value"
    if kind not in _ONE_PORT or has_several_ports:
        return False
    if isinstance(node.operator, nodes.TableSource):
        return not node.operator.versioned
    if isinstance(node.operator, nodes.TableFilter | nodes.TableMapValues) and node.operator.store is not None:
        return topology.store(node.operator.store).kind == "key-value"
    return True


def step_of(node: nodes.Node, context: BlockContext) -> Any:
    """Returns the step of a node for which `has_step` is true, except sinks and repartitions."""
    kind = type(node.operator)
    return (_ANY_PORT.get(kind) or _SEVERAL_PORTS.get(kind) or _ONE_PORT[kind])(node.operator, context)
