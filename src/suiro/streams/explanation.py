"""What of a topology runs on columns on Spark, and what record by record."""

from __future__ import annotations

from suiro.streams.task import TaskSettings
from suiro.streams.topology import Topology
from suiro.streams.vectorised import plan

__all__ = ["explain"]


def explain(topology: Topology, *, emit: str = "micro-batch") -> str:
    """A line for each operator or sub-topology, with the reason where it runs record by record. `emit` as
    `KafkaStreams` takes it.

    >>> print(explain(builder.build()))
    """
    return "\n".join(plan.explain(topology, TaskSettings(coalesces=emit != "every")))
