"""A rule's view of its task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from suiro.streams.calls import Caller
from suiro.streams.punctuation import Punctuators
from suiro.streams.records import Origin, Record
from suiro.streams.times import OperatorTime
from suiro.streams.topology.nodes import Node
from suiro.streams.topology.topology import SubTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """`on_processing_error`: "fail", "skip" or "dead-letter:<topic>". `coalesces`: one update per key and batch leaves
    a table, as with Kafka Streams' record cache; else every update does."""

    on_processing_error: str = "fail"
    coalesces: bool = False
    application_id: str = "app"


class _Task(Protocol):
    """The members of `streams.task.Task` that rules may use."""

    stores: dict[str, Any]
    settings: TaskSettings
    sub_topology: SubTopology
    partition: int
    origin: Origin | None
    is_settled: bool
    wall_clock_time: int
    punctuators: Punctuators

    @property
    def caller(self) -> Caller: ...
    @property
    def stream_time(self) -> int: ...
    def drop(self, reason: str) -> None: ...
    def next_number(self, node: str) -> int: ...
    def attempt(self, node: Node, record: Record, step: Callable[[Record], None]) -> None: ...
    def carry(self, carried: int) -> None: ...


class Context:
    """What a rule sees of its task; also, through the Processor API, what users see (`processor_api`)."""

    __slots__ = ("_children", "_task", "forward", "node", "time")

    def __init__(
        self,
        task: _Task,
        node: Node,
        time: OperatorTime,
        forward: Callable[[Record], None],
        children: Mapping[str, Callable[[Record], None]],
    ) -> None:
        self.node = node
        self.time = time
        self.forward = forward
        """To every child, in the order they were built."""
        self._task = task
        self._children = children

    def forward_to(self, child: str, record: Record) -> None:
        self._children[child](record)

    @property
    def children(self) -> Collection[str]:
        return self._children

    def store(self, name: str) -> Any:
        return self._task.stores[name]

    def drop(self, reason: str) -> None:
        """Counts a record that is left out."""
        self._task.drop(reason)

    def next_number(self) -> int:
        """Grows with each call of this operator in this task, also over restarts."""
        return self._task.next_number(self.node.name)

    def attempt(self, record: Record, step: Callable[[Record], None]) -> None:
        """Does for a record that waited what `process` does for one that comes: if it fails, it alone is left out."""
        self._task.attempt(self.node, record, step)

    def carry(self, carried: int) -> None:
        """For a record that waited for the batch's end: what `time.carried` was when it came."""
        self._task.carry(carried)

    @property
    def is_settled(self) -> bool:
        """At the end of a batch: nothing is on its way to this task from other tasks."""
        return self._task.is_settled

    @property
    def origin(self) -> Origin | None:
        return self._task.origin

    @property
    def partition(self) -> int:
        return self._task.partition

    @property
    def caller(self) -> Caller:
        return self._task.caller

    @property
    def settings(self) -> TaskSettings:
        return self._task.settings

    @property
    def sub_topology(self) -> SubTopology:
        return self._task.sub_topology

    @property
    def stream_time(self) -> int:
        """The task's: the latest timestamp of all records it was fed."""
        return self._task.stream_time

    @property
    def wall_clock_time(self) -> int:
        return self._task.wall_clock_time

    @property
    def punctuators(self) -> Punctuators:
        return self._task.punctuators
