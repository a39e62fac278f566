"""Runs a part of a topology by the rules, for chunks that columnar operators cannot process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Origin, Record
from suiro.streams.serdes import natural
from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES, Task
from suiro.streams.topology.nodes import Node, Repartition, Sink, Source
from suiro.streams.topology.topology import SubTopology, Topology
from suiro.streams.vectorised.stateless import Chain


class Failures(Protocol):
    """Takes the records that fail on the way."""

    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None: ...


class RulePath:
    """Runs a `Chain` record by record. It does not run the exits; it returns the records that arrive at them."""

    def __init__(
        self,
        topology: Topology,
        chain: Chain,
        *,
        settings: TaskSettings,
        partition: int,
        failures: Failures,
    ) -> None:
        self._failures = failures
        self._each: Callable[[str, Record], None] = lambda name, record: None
        start = chain.start
        if not isinstance(start.operator, Source | Repartition):
            start = replace(start, operator=Source(topics=(), key=natural, value=natural), parents=())
        nodes = tuple(_ending(node) if node.name in chain.exits else node for node in chain.nodes)
        sub = SubTopology(number=0, nodes=(start, *nodes), inputs=(start,), outputs=(), stores=())
        if isinstance(start.operator, Repartition):
            sub = replace(sub, nodes=nodes)
        self._start = start.name
        self._task = Task(
            Topology(nodes=(start, *nodes)),
            sub,
            partition=partition,
            maps={TIMES: OrderedMap()},
            outputs=self,
            settings=replace(settings, coalesces=False),
        )

    @property
    def dropped(self) -> dict[str, int]:
        return self._task.dropped

    def run(self, records: Iterable[tuple[Record, Origin | None]], each: Callable[[str, Record], None]) -> None:
        """Calls `each(exit, record)` for each record that arrives at an exit. If the call fails, the record has failed
        at the exit."""
        self._each = each
        for record, origin in records:
            self._task.process(self._start, record, origin)

    def emit(self, node: Node, record: Record) -> None:
        self._each(node.name, record)

    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None:
        self._failures.dead_letter(topic, record, origin, error)


def _ending(node: Node) -> Node:
    if isinstance(node.operator, Sink | Repartition):
        return node
    return replace(node, operator=Sink(topic=""))


def add_counts(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for reason, count in more.items():
        if count:
            counts[reason] = counts.get(reason, 0) + count
