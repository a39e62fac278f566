"""A rule's view of its operator and its task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """The members of `streams.task.Task` that rules may use.

    `is_settled`: at the end of a batch, nothing is on its way to this task from other tasks. `stream_time`: the latest
    timestamp of all records that the task was fed.
    """

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
    def next_number(self, node: str) -> int:
        """Grows with each call for this operator in this task, also over restarts."""
        ...

    def attempt(self, node: Node, record: Record, step: Callable[[Record], None]) -> None: ...
    def policy_for(self, error: Exception) -> str: ...
    def carry(self, carried: int) -> None:
        """For a record that waited for the end of the batch: `time.carried` as it was when the record came."""
        ...


class _SubTopologyTask(Protocol):
    sub_topology: SubTopology


class OperatorContext(Protocol):
    """The members of `Context` and of `BlockContext` that the common parts of operators use."""

    time: OperatorTime

    @property
    def task(self) -> _SubTopologyTask: ...
    @property
    def drop(self) -> Callable[[str], None]: ...
    def store(self, name: str) -> Any: ...


@dataclass(eq=False, slots=True)
class Context:
    """An operator in its task. Users see it through the Processor API (`processor_api`)."""

    task: _Task
    node: Node
    time: OperatorTime
    forward: Callable[[Record], None]
    """Forwards a record to every child, in the order they were built."""
    children: Mapping[str, Callable[[Record], None]]

    def drop(self, reason: str) -> None:
        """Counts a record that is left out."""
        self.task.drop(reason)

    def store(self, name: str) -> Any:
        return self.task.stores[name]

    def attempt(self, record: Record, step: Callable[[Record], None]) -> None:
        """Runs the step for a record that waited. If the step fails, only this record is left out."""
        self.task.attempt(self.node, record, step)
