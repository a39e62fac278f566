"""Plans a topology: which sub-topologies run in source tasks, which in stream tasks, and at which level.

A task is what Kafka Streams calls a task: one sub-topology, one partition. Level 0 is the source task itself, for
sub-topologies without state whose inputs are all topics; a task's level is one more than the highest above it.
Everything here is decided once, from the topology and the topics' partition counts; it is a pure function of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from suiro.foundation.types import TopicPartition
from suiro.streams.dsl.checks import CoPartitioned
from suiro.streams.durations import LONGEST_MS
from suiro.streams.errors import TopologyError
from suiro.streams.topology.nodes import (
    COUNTING_NULL_KEYS,
    COUNTING_NULLS,
    ForeignKeyResolve,
    GlobalTableSource,
    Node,
    Process,
    Repartition,
    Source,
)
from suiro.streams.topology.topology import SubTopology, Topology, in_order

IN_SOURCE_TASKS = 0
_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SubPlan:
    """`follows_time`: its operators may act as time advances, without a record; so input partitions tell it their
    times."""

    number: int
    level: int
    tasks: int
    follows_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A topic that the topology owns. Its name has the application id in front."""

    name: str
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Plan:
    topology: Topology
    application_id: str
    subs: tuple[SubPlan, ...]
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """Of the source topics."""

    @property
    def levels(self) -> int:
        return max((sub.level for sub in self.subs), default=IN_SOURCE_TASKS)

    @cached_property
    def readers(self) -> dict[str, int]:
        """A `Repartition`'s name -> the sub-topology that reads it."""
        return {
            node.name: sub.number
            for sub in self.topology.sub_topologies
            for node in sub.inputs
            if isinstance(node.operator, Repartition)
        }

    @cached_property
    def visits(self) -> dict[str, dict[str, int]]:
        """By topic, and "" for any task: for each node, its place in the order in which a record comes to them."""
        return {topic: self._visits(topic) for topic in ("", *self.topology.source_topics)}

    def _visits(self, topic: str) -> dict[str, int]:
        found: dict[str, int] = {}
        pending = [node for node in reversed(self.topology.nodes) if isinstance(node.operator, Source)]
        # The topic's own sources come first: where streams meet, others would come by another way.
        pending.sort(key=lambda node: isinstance(node.operator, Source) and topic in node.operator.topics)
        while pending:
            node = pending.pop()
            if node.name not in found:
                found[node.name] = len(found)
                pending += [child for child, _ in reversed(self.topology.children(node.name))]
        return found

    @cached_property
    def ignoring_nulls(self) -> dict[str, set[str]]:
        """By `Repartition`, those of "key" and "value" whose nulls advance the time of no operator behind it: they do
        not say how far their input partition has come."""
        found: dict[str, set[str]] = {}
        for sub in self.topology.sub_topologies:
            for node in sub.inputs:
                if isinstance(node.operator, Repartition):
                    keys = {"key": COUNTING_NULL_KEYS} if node.operator.keeps_null_keys else {}
                    found[node.name] = {
                        column
                        for column, counting in (keys | {"value": COUNTING_NULLS}).items()
                        if not any(isinstance(each.operator, counting) for each in sub.nodes)
                    }
        return found

    @cached_property
    def inputs(self) -> dict[str, list[tuple[SubPlan, Node]]]:
        """The sub-topologies that read a source topic, and the node that reads it. Global tables: see
        `global_inputs`."""
        found: dict[str, list[tuple[SubPlan, Node]]] = {}
        for sub in self.topology.sub_topologies:
            for node in sub.inputs:
                if isinstance(node.operator, Source):
                    for topic in node.operator.topics:
                        found.setdefault(topic, []).append((self.subs[sub.number], node))
        return found

    @cached_property
    def global_inputs(self) -> dict[str, list[tuple[SubPlan, Node]]]:
        """The topic of a global table -> every sub-topology that needs the table, and the table's source node."""
        found: dict[str, list[tuple[SubPlan, Node]]] = {}
        for node in self.topology.nodes:
            if isinstance(node.operator, GlobalTableSource):
                source = self.topology.node(node.parents[0])
                assert isinstance(source.operator, Source)
                for sub in self.topology.sub_topologies:
                    if node.operator.store in sub.global_tables:
                        for topic in source.operator.topics:
                            found.setdefault(topic, []).append((self.subs[sub.number], source))
        return found

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.inputs, *self.global_inputs)))

    def require_known(self, places: Iterable[TopicPartition]) -> None:
        """Raises `TopologyError` for a partition that has no task, being younger than the query's start."""
        for topic, partition in places:
            for sub, _ in self.inputs.get(topic, ()):
                if sub.level != IN_SOURCE_TASKS and partition >= sub.tasks:
                    raise TopologyError(
                        f"topic {topic!r} has a partition {partition} now, and {self.application_id!r} has state for "
                        f"{sub.tasks}: with more partitions keys are in other places than their state. Write to a "
                        "new topic with as many partitions as you want and read that, or take a new application id, "
                        "which reads from the beginning"
                    )

    def changelog(self, store: str) -> str:
        return f"{self.application_id}-{store}-changelog"

    def partitions_of(self, cut: Node) -> int:
        """How many partitions a `Repartition` has: as many as were asked for, or as there are tasks that read it. Where
        nothing reads it, as many as write it."""
        assert isinstance(cut.operator, Repartition)
        if cut.operator.partitions is not None:
            return cut.operator.partitions
        sub = self.readers.get(cut.name)
        if sub is None:
            sub = next(sub.number for sub in self.topology.sub_topologies if cut in sub.outputs)
        return self.subs[sub].tasks

    def repartition_topic(self, cut: Repartition) -> str:
        return f"{self.application_id}-{cut.topic}"

    @property
    def internal_topics(self) -> list[InternalTopic]:
        """Changelogs, and the repartition topics that were asked for. Settings are Kafka Streams', with two exceptions.
        In changelogs of windows, rows that expire are deleted by tombstones: retention goes by the wall clock, and
        would also delete rows of long ago that the store has. Repartition topics have the cluster's retention: Kafka
        Streams purges them behind its own reader, and here only others read them."""
        found = []
        for sub in self.topology.sub_topologies:
            tasks = self.subs[sub.number].tasks
            for spec in sub.stores:
                if spec.logged:
                    configs = _changelog_configs(spec.kind, spec.retention_ms)
                    found.append(InternalTopic(name=self.changelog(spec.name), partitions=tasks, configs=configs))
        for node in self.topology.nodes:
            if isinstance(node.operator, Repartition) and node.operator.asked_for:
                configs = {"cleanup.policy": "delete", "segment.bytes": str(50 << 20)}
                name = self.repartition_topic(node.operator)
                found.append(InternalTopic(name=name, partitions=self.partitions_of(node), configs=configs))
        return found


def plan(topology: Topology, application_id: str, partition_counts: Mapping[str, int]) -> Plan:
    """`partition_counts`: of every source topic. Raises `TopologyError` for what cannot be run."""
    # Tasks read a plan and never make one: their processes need no DSL.
    from suiro.streams.dsl.loops import without_loops

    topology = without_loops(topology)
    subs = topology.sub_topologies
    writers = {node.name: sub for sub in subs for node in sub.outputs if isinstance(node.operator, Repartition)}
    levels = _levels(topology, writers)
    tasks = _task_counts(subs, writers, partition_counts)
    _check_co_partitioning(subs, partition_counts, tasks)
    return Plan(
        topology=topology,
        application_id=application_id,
        partition_counts=dict(partition_counts),
        subs=tuple(
            SubPlan(
                number=sub.number,
                level=levels[sub.number],
                tasks=tasks[sub.number],
                follows_time=_follows_time(sub),
            )
            for sub in subs
        ),
    )


def _levels(topology: Topology, writers: Mapping[str, SubTopology]) -> dict[int, int]:
    levels: dict[int, int] = {}
    for sub in in_order(topology):
        above = [levels[writers[node.name].number] for node in sub.inputs if isinstance(node.operator, Repartition)]
        in_source = not above and not sub.is_stateful and not any(map(_needs_partition_time, sub.inputs))
        levels[sub.number] = IN_SOURCE_TASKS if in_source else 1 + max(above, default=0)
    return levels


def _needs_partition_time(node: Node) -> bool:
    """An extractor is given the partition's time so far, which only a task remembers."""
    return isinstance(node.operator, Source) and node.operator.timestamp is not None


def _task_counts(
    subs: tuple[SubTopology, ...], writers: Mapping[str, SubTopology], counts: Mapping[str, int]
) -> dict[int, int]:
    """As many as the widest input has partitions. A repartition without a number is as wide as what feeds it; but as
    wide as the others where it is joined with inputs that have a number, for those cannot adapt."""
    known: dict[int, int] = {}

    def width(sub: SubTopology) -> int:
        if sub.number not in known:
            fixed, free = [], []
            for node in sub.inputs:
                if isinstance(node.operator, Source):
                    fixed += [counts[topic] for topic in node.operator.topics]
                elif isinstance(node.operator, Repartition) and node.operator.partitions is not None:
                    fixed.append(node.operator.partitions)
                elif isinstance(node.operator, Repartition):
                    free.append(writers[node.name])
            if not (fixed and _joins(sub)):
                fixed += [width(above) for above in free]
            known[sub.number] = max(fixed, default=1)
        return known[sub.number]

    return {sub.number: width(sub) for sub in subs}


def _joins(sub: SubTopology) -> list[str]:
    """Nodes that bring together records of one key from several inputs."""
    return [
        node.name
        for node in sub.nodes
        # Answers go to the rows that asked, wherever the operator itself reads those from.
        if isinstance(node.operator, ForeignKeyResolve)
        or (isinstance(node.operator, CoPartitioned) and len(node.parents) > 1)
    ]


def _check_co_partitioning(subs: tuple[SubTopology, ...], counts: Mapping[str, int], tasks: Mapping[int, int]) -> None:
    for sub in subs:
        joins = _joins(sub)
        if not joins:
            continue
        widths: dict[str, int] = {}
        for node in sub.inputs:
            if isinstance(node.operator, Source):
                widths.update({topic: counts[topic] for topic in node.operator.topics})
            elif isinstance(node.operator, Repartition) and node.operator.partitions is not None:
                widths[node.operator.topic] = node.operator.partitions
        wrong = {topic: count for topic, count in widths.items() if count != tasks[sub.number]}
        if wrong:
            listed = ", ".join(f"{topic} ({count})" for topic, count in sorted(widths.items()))
            raise TopologyError(
                f"{', '.join(joins)} brings together topics of different partition counts: {listed}. Records of one "
                "key would not meet; give the topics the same count, or put "
                f"repartition(partitions={tasks[sub.number]}) in between"
            )


def _follows_time(sub: SubTopology) -> bool:
    """Whether any operator looks at time; those listed here never do."""
    timeless = {
        *("Source", "Sink", "Repartition", "Merge", "Filter", "ToStream", "StreamAggregate"),
        *("Map", "MapValues", "FlatMap", "FlatMapValues", "SelectKey", "Peek", "Branch"),
        *("AsyncCall", "MapBatches"),
        *("TableSource", "TableFilter", "TableMapValues", "TableGroupBy", "TableAggregate", "TableTableJoin"),
        "StreamGlobalTableJoin",
    }
    return any(type(node.operator).__name__ not in timeless for node in sub.nodes)


def may_punctuate(subs: Iterable[SubTopology]) -> bool:
    return any(isinstance(node.operator, Process) for sub in subs for node in sub.nodes)


def _changelog_configs(kind: str, retention_ms: int | None) -> dict[str, str]:
    kept = str(min((retention_ms or 0) + _DAY_MS, LONGEST_MS))
    match kind:
        case "stream-join":
            return {"cleanup.policy": "delete", "retention.ms": kept}
        case "versioned":
            return {"cleanup.policy": "compact", "min.compaction.lag.ms": kept}
        case _:
            return {"cleanup.policy": "compact"}
