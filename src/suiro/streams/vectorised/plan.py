"""Selects the sub-topologies that run on columns: `columnar_form_of` returns columnar operators, or the reason why not.

A columnar form of an aggregation has two sides: in the source task it turns an input partition's columns into a
payload, in the task it puts payloads into the state and gives what leaves. A columnar form of a sub-topology without
state has only the first.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from suiro.streams.operators.context import TaskSettings
from suiro.streams.topology.nodes import Node, Sink, StreamAggregate, StreamTableJoin, TimeWindowAggregate
from suiro.streams.topology.topology import SubTopology, Topology
from suiro.streams.vectorised.columnar_aggregate import ColumnarAggregate, columnar_aggregate
from suiro.streams.vectorised.emission import Emission, emissions, is_for_us
from suiro.streams.vectorised.stateless import Chain, Reason, check_input, read_chunk, types_of_input
from suiro.streams.vectorised.stream_table_join import ColumnarJoin, columnar_join


class ColumnarStateless:
    kind: Literal["stateless"] = "stateless"

    def __init__(self, topology: Topology, chains: dict[str, Chain]) -> None:
        self._topology = topology
        self._chains = chains
        self._fields = {name: _fields(chain) for name, chain in chains.items()}

    def run(self, input_name: str, columns: pa.RecordBatch, *, topic: str) -> list[Emission]:
        """Runs a chunk of an input partition. Raises one of `stateless.FALLBACK` before anything has changed; the rules
        must then run on the chunk."""
        node = self._topology.node(input_name)
        chunk = read_chunk(node, columns, topic, fields=self._fields[input_name])
        return emissions(self._topology, self._chains[input_name].run(chunk))

    def explain(self) -> list[str]:
        nodes = dict.fromkeys(node.name for chain in self._chains.values() for node in chain.nodes)
        return [f"{name}: columns" for name in nodes]


ColumnarForm: TypeAlias = ColumnarStateless | ColumnarAggregate | ColumnarJoin


def columnar_form_of(topology: Topology, sub: SubTopology, settings: TaskSettings) -> ColumnarForm | Reason:
    """A pure function of the topology and the settings."""
    try:
        return _columnar_form(topology, sub, settings)
    except Reason as reason:
        # Results are kept. What was raised refers to all frames of the callers, and so to a micro-batch's records.
        return Reason(*reason.args)


def _columnar_form(topology: Topology, sub: SubTopology, settings: TaskSettings) -> ColumnarForm:
    topics = Counter(node.operator.topic for node in sub.outputs if isinstance(node.operator, Sink))
    twice = [topic for topic, count in topics.items() if count > 1]
    if twice:
        raise Reason(f"several sinks write to {twice[0]}, in the order of the records")
    if not sub.is_stateful:
        return _stateless(topology, sub)
    if not settings.coalesces:
        raise Reason("every update is wanted, not one per key and micro-batch")
    if sub.global_tables:
        raise Reason("a global table is joined")
    aggregates = [n for n in sub.nodes if isinstance(n.operator, StreamAggregate | TimeWindowAggregate)]
    if len(aggregates) == 1 and len(sub.stores) == 1:
        return columnar_aggregate(topology, sub, aggregates[0], settings)
    joins = [n for n in sub.nodes if isinstance(n.operator, StreamTableJoin)]
    if len(joins) == 1 and len(sub.stores) == 1:
        return columnar_join(topology, sub, joins[0], settings)
    raise Reason(f"{_stateful_names(sub)}: no form for columns")


def _stateless(topology: Topology, sub: SubTopology) -> ColumnarStateless:
    inside = {node.name for node in sub.nodes}
    exits = {node.name for node in sub.outputs}
    chains = {}
    for node in sub.inputs:
        check_input(node)
        chains[node.name] = chain = Chain(topology, node, exits=exits, inside=inside)
        chain.check(types_of_input(node))
    return ColumnarStateless(topology, chains)


def _fields(chain: Chain) -> frozenset[str] | None:
    """Returns the fields that the chain reads of an input's values. It does not read values that leave for one of our
    tasks as they came."""
    source: Any = chain.start.operator

    def of_exit(node: Node) -> frozenset[str] | None:
        operator = node.operator
        return frozenset() if is_for_us(operator) and operator.value == source.value else None

    return chain.fields(of_exit)


def _stateful_names(sub: SubTopology) -> str:
    names: list[Node] = [node for node in sub.nodes if getattr(node.operator, "store", None)]
    return ", ".join(node.name for node in names) or f"sub-topology {sub.number}"
