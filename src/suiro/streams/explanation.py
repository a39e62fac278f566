"""Explains how a topology runs on Spark: which nodes on columns, over blocks or record by record, and why."""

from __future__ import annotations

from collections.abc import Iterator

from suiro.streams.blocks import block_plan
from suiro.streams.dsl.loops import without_loops
from suiro.streams.errors import TopologyError
from suiro.streams.operators.context import TaskSettings
from suiro.streams.topology.nodes import AsyncCall, MapBatches, Node, Repartition, Sink, Source
from suiro.streams.topology.topology import SubTopology, Topology
from suiro.streams.vectorised.plan import columnar_form_of
from suiro.streams.vectorised.stateless import Reason

FRAMES = {"pyarrow": "table of pyarrow", "pandas": "frame of pandas", "polars": "frame of polars"}


def explain(topology: Topology, *, emit: str = "micro-batch") -> str:
    """A line for each sub-topology and operator: on Arrow columns, which expressions need; over blocks of Python
    values, which functions need; or record by record. Bytes become values at sources and bytes again at sinks and
    repartitions. Where a faster way is not taken, the line says why. `emit` as `KafkaStreams` takes it.

    >>> print(explain(builder.build()))
    """
    settings = TaskSettings(coalesces=emit != "every")
    try:
        topology = without_loops(topology)
    except TopologyError as error:
        return f"does not run on Spark: {error}"
    return "\n".join(line for sub in topology.sub_topologies for line in _lines(topology, sub, settings))


def _lines(topology: Topology, sub: SubTopology, settings: TaskSettings) -> Iterator[str]:
    columnar = columnar_form_of(topology, sub, settings)
    if not isinstance(columnar, Reason):
        yield f"sub-topology {sub.number}: on columns"
        yield from (f"  {line}" for line in columnar.explain())
        return
    yield f"sub-topology {sub.number}: over blocks of values, not on columns ({columnar})"
    for node in sub.inputs:
        if isinstance(node.operator, Repartition):
            yield f"  {node.name}: bytes to values, a block at a time"
    for unit in block_plan(topology, sub).units:
        if unit.is_island:
            yield f"  {', '.join(unit.nodes)}: record by record, because {unit.why}"
            for name in unit.nodes:
                if isinstance(topology.node(name).operator, AsyncCall):
                    yield f"    {name}: one call at a time; put it above them, or repartition() between"
                elif isinstance(topology.node(name).operator, MapBatches):
                    yield f"    {name}: a batch for each record; put it above them, or repartition() between"
        else:
            yield f"  {unit.nodes[0]}: {_kinds(topology.node(unit.nodes[0]))}, a block at a time"


def _kinds(node: Node) -> str:
    match node.operator:
        case Source():
            return "bytes to values"
        case Sink() | Repartition():
            return "values to bytes"
        case AsyncCall() as calls:
            order = ", those of one key one after the other" if calls.by_key else ""
            return f"values, up to {calls.concurrency} calls at a time{order}"
        case MapBatches(format=form):
            return f"values to a {FRAMES[form]} and back to values"
    return "values"
