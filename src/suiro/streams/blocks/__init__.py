"""Runs sub-topologies over blocks of records, on Spark. Tests compare it with the interpreter."""

from __future__ import annotations

from functools import partial

from suiro.streams.blocks.block import Block
from suiro.streams.blocks.outputs import BlockOutputs, Parcel
from suiro.streams.blocks.plan import BlockPlan, plan_of
from suiro.streams.blocks.steps import has_step
from suiro.streams.blocks.task import BlockTask, Taken
from suiro.streams.topology.topology import SubTopology, Topology

__all__ = ["Block", "BlockOutputs", "BlockPlan", "BlockTask", "Parcel", "Taken", "block_plan"]


def block_plan(topology: Topology, sub: SubTopology) -> BlockPlan:
    return plan_of(topology, sub, partial(has_step, topology))
