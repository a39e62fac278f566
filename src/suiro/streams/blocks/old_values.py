"""Finds the nodes that read the old value of a change. Other nodes do not look it up."""

from __future__ import annotations

from suiro.streams.topology.nodes import Node, StreamTableJoin, TableFilter, TableMapValues, ToStream
from suiro.streams.topology.topology import Topology


def needs_old(topology: Topology, node: Node) -> bool:
    """Tells whether a child of the node may read the old values that it sends."""
    return any(_reads(child) for child, _ in topology.children(node.name))


def _reads(child: Node) -> bool:
    match child.operator:
        case ToStream() | StreamTableJoin():
            return False
        case TableFilter(sends_old=sends_old) | TableMapValues(sends_old=sends_old):
            return sends_old
    return True
