"""A running topology as text, which Spark sends to each worker process.

Functions of the user's main program travel by value (cloudpickle); those of modules are imported by workers, from
where the driver has them if there is such a folder on the worker's machine. A worker unpacks a program once, and keeps
the last few.
"""

from __future__ import annotations

import base64
import pickle  # of the user's functions: only cloudpickle, as Spark uses it, carries code to workers
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from suiro.spark import Pace, SinkOptions, SourceOptions
from suiro.streams.errors import TopologyError
from suiro.streams.operators.context import TaskSettings
from suiro.streams.topology.nodes import Node
from suiro.streams.topology.topology import Topology
from suiro.streams_spark.plan import Plan
from suiro.streams_spark.rebuild import Boundary
from suiro.telemetry import Tracing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """`run` is new at every start: the state that a worker cached for another run is not for this one.

    `clock_ms`: how often a micro-batch must bring the wall clock; None if nothing waits for it. `boundary`: of a
    rebuild. `follows`: it follows another process of the application, which writes the results (`replacement`).
    `pace`: limits micro-batches; picklable, since another process calls it. `tracing`: of records.
    """

    run: str
    plan: Plan
    settings: TaskSettings
    on_deserialization_error: str
    source: SourceOptions
    sink: SinkOptions
    parallelism: int
    clock_ms: int | None = None
    boundary: Boundary | None = None
    follows: bool = False
    pace: Pace | None = None
    tracing: Tracing | None = None

    @property
    def connection(self) -> tuple[str, Mapping[str, str]]:
        return self.source.bootstrap_servers, self.source.client_settings


def packed(value: Any) -> str:
    """Packs a value that has functions of the user's program, for another process of this machine or of Spark."""
    from pyspark import cloudpickle

    data = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return base64.b85encode(pickle.dumps((list(sys.path), data))).decode()


def unpacked(text: str) -> Any:
    places, data = pickle.loads(base64.b85decode(text))
    sys.path += [place for place in places if place not in sys.path and Path(place).exists()]
    return pickle.loads(data)


@lru_cache(maxsize=8)
def load(text: str) -> Program:
    found = unpacked(text)
    assert isinstance(found, Program)
    return found


def check_picklable(topology: Topology) -> None:
    """Raises `TopologyError` if a function of the topology cannot be sent to Spark's workers."""
    from pyspark import cloudpickle

    for node in topology.nodes:
        for name, given in _functions(node):
            try:
                cloudpickle.loads(cloudpickle.dumps(given))  # type: ignore[no-untyped-call]
            except Exception as error:
                raise TopologyError(
                    f"the {name} of {node.name} cannot be sent to Spark's workers: {type(error).__name__}: {error}; "
                    "open files, locks, sockets and sessions inside the function, do not bring them from outside"
                ) from error


def _functions(node: Node) -> list[tuple[str, Any]]:
    return [
        (field.name, value)
        for field in fields(node.operator)
        if (value := getattr(node.operator, field.name)) is not None and not isinstance(value, str | int | bool)
    ]
