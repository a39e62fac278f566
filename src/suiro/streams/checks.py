"""What is refused while a topology is built, and what only a runner can know: partition counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from suiro.streams.errors import TopologyError
from suiro.streams.expressions import Expression
from suiro.streams.nodes import (
    Function,
    Process,
    Repartition,
    SessionAggregate,
    SlidingAggregate,
    Source,
    StreamAggregate,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
    TimeWindowAggregate,
)
from suiro.streams.topology import Topology

__all__ = [
    "CoPartitioned",
    "check_co_partitioned",
    "check_topology",
    "function",
    "python_function",
]

CoPartitioned = (
    StreamStreamJoin
    | StreamTableJoin
    | TableTableJoin
    | StreamAggregate
    | TimeWindowAggregate
    | SlidingAggregate
    | SessionAggregate
)
"""With several parents: operators that bring records with one key together."""


def function(given: Any, what: str) -> Function:
    """A function of an operator; `what` says whose, in errors ("the predicate of filter")."""
    if isinstance(given, Expression) or callable(given):
        return given  # type: ignore[no-any-return]
    raise TopologyError(
        f"{what} is {given!r}, which is neither a Python callable nor an expression; give a function, or an expression "
        'such as col("amount") > 0'
    )


def python_function(given: Any, what: str) -> Callable[..., Any]:
    """A function that no expression can be."""
    if callable(given) and not isinstance(given, Expression):
        return given  # type: ignore[no-any-return]
    raise TopologyError(f"{what} is {given!r}, which is not a Python callable; give a function")


def check_topology(topology: Topology) -> None:
    """Raises TopologyError for what can be seen without a broker."""
    if not topology.nodes:
        raise TopologyError(
            "the topology is empty; start it with builder.stream(topic) or builder.table(topic)"
        )
    known = {spec.name for spec in topology.stores}
    for node in topology.nodes:
        if isinstance(node.operator, Process):
            for store in node.operator.stores:
                if store not in known:
                    raise TopologyError(
                        f"{node.name} uses the store {store!r}, which does not exist; add it with "
                        "builder.add_state_store(), or name a table's store"
                    )
    for topic in topology.sink_topics:
        if topic in topology.source_topics:
            raise TopologyError(
                f"the topology writes topic {topic!r} and reads it too, which is a cycle; to go on with the records "
                "use the stream itself, or repartition() for a topic between"
            )


def check_co_partitioned(topology: Topology, partition_counts: Mapping[str, int]) -> None:
    """Topics that meet by key must be cut alike. `partition_counts` has the topology's source topics."""
    for node in topology.nodes:
        if not isinstance(node.operator, CoPartitioned) or len(node.parents) < 2:
            continue
        counts: dict[str, int] = {}
        for parent in node.parents:
            counts.update(_counts_above(topology, parent, partition_counts))
        if len(set(counts.values())) > 1:
            told = " and ".join(f"{topic!r} has {count}" for topic, count in counts.items())
            raise TopologyError(
                f"{node.name} brings records with one key together, but its topics have different partition counts: "
                f"{told}; give the topics the same count, or put repartition(partitions=...) behind one of them"
            )


def _counts_above(topology: Topology, name: str, partition_counts: Mapping[str, int]) -> dict[str, int]:
    """Of the topics that a node's records come from, by topic. Repartitions of free width adapt to the others."""
    operator = topology.node(name).operator
    if isinstance(operator, Source):
        return {topic: partition_counts[topic] for topic in operator.topics if topic in partition_counts}
    if isinstance(operator, Repartition):
        return {} if operator.partitions is None else {operator.topic: operator.partitions}
    found: dict[str, int] = {}
    for parent in topology.node(name).parents:
        found.update(_counts_above(topology, parent, partition_counts))
    return found
