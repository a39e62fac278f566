"""The interval at which tasks need the wall clock, from the schedules of the topology's processors."""

from __future__ import annotations

import logging

from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Origin, Record
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.task import TIMES, Task
from suiro.streams.topology.nodes import Node, Process
from suiro.streams.topology.topology import SubTopology, Topology

EVERY_MS_MIN = 100
"""A micro-batch takes longer than a shorter interval."""

UNKNOWN_EVERY_MS = 1_000

_log = logging.getLogger(__name__)


class _Nowhere:
    def emit(self, node: Node, record: Record) -> None: ...
    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None: ...


def clock_interval(topology: Topology, settings: TaskSettings) -> int | None:
    """The shortest interval of a wall-clock punctuator, ms; None where there is none.

    Makes a task of each sub-topology that has processors, with empty stores, as only `init` says what is scheduled.
    """
    found: list[int] = []
    for sub in topology.sub_topologies:
        if any(isinstance(node.operator, Process) for node in sub.nodes):
            found += _scheduled(topology, sub, settings)
    return max(EVERY_MS_MIN, min(found)) if found else None


def _scheduled(topology: Topology, sub: SubTopology, settings: TaskSettings) -> list[int]:
    try:
        task = Task(
            topology,
            sub,
            partition=0,
            maps={name: OrderedMap() for name in (*(spec.name for spec in sub.stores), TIMES)},
            outputs=_Nowhere(),
            settings=settings,
            global_stores={name: open_store(topology.store(name), OrderedMap()) for name in sub.global_tables},
        )
    except Exception as error:  # noqa: BLE001 - a user's function raises anything
        # It may work in the worker. If it does not, the worker's error says so.
        names = ", ".join(node.name for node in sub.nodes if isinstance(node.operator, Process))
        _log.warning("processors of %s cannot be made on the driver: %s", names, error)
        return [UNKNOWN_EVERY_MS]
    intervals = [item.interval_ms for item in task.punctuators if item.type == "wall-clock-time"]
    task.close()
    return intervals
