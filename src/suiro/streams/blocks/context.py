"""A step's view of its task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suiro.streams.blocks.block import Block
from suiro.streams.blocks.plan import Edge
from suiro.streams.records import Record
from suiro.streams.times import OperatorTime
from suiro.streams.topology.nodes import Node, StreamTableJoin, TableFilter, TableMapValues, ToStream
from suiro.streams.topology.topology import Topology


class BlockContext:
    """The counterpart of `Context` for steps. `task`: the `BlockTask`. `needs_old`: an operator below may read the old
    values of changes; otherwise a step does not look them up."""

    def __init__(self, task: Any, topology: Topology, node: Node, edges: tuple[Edge, ...]) -> None:
        self.node = node
        self.time: OperatorTime = task.times[node.name]
        self.needs_old = any(_reads_old(child) for child, _ in topology.children(node.name))
        self.task = task
        self._edges = edges

    def forward(self, block: Block) -> None:
        """Forwards a block to every child. A step must not forward the rows of one record in two blocks, unless each
        was made with `several` (`Block.made`)."""
        for edge in self._edges:
            self.task.deliver(edge, block)

    def forward_to(self, child: str, block: Block) -> None:
        for edge in self._edges:
            if edge.child == child:
                self.task.deliver(edge, block)

    def store(self, name: str) -> Any:
        return self.task.stores[name]

    def drop(self, reason: str, count: int = 1) -> None:
        """Counts records that are left out."""
        if count:
            self.task.drop(reason, count)

    def failed(self, block: Block, row: int, error: Exception) -> None:
        """Reports that the function raised on this row. Raises if the policy is to fail; otherwise the row is left
        out."""
        self.task.failed_row(self.node, block, row, error)

    def attempt(self, block: Block, row: int, record: Record, step: Callable[[Record], None]) -> None:
        """Runs the step for a waiting record that this row releases. If the step fails, only the waiting record is left
        out."""
        self.task.attempt_row(self.node, block, row, record, step)

    def attempt_at_the_end(self, record: Record, step: Callable[[Record], None]) -> None:
        """Runs the step for a waiting record at the end of the micro-batch."""
        self.task.attempt(self.node, record, step)


def _reads_old(child: Node) -> bool:
    match child.operator:
        case ToStream() | StreamTableJoin():
            return False
        case TableFilter(sends_old=sends_old) | TableMapValues(sends_old=sends_old):
            return sends_old
    return True
