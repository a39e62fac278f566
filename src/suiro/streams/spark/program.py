"""What every worker process must know of a running topology, as text that Spark carries to it.

Functions of the user's main program travel by value (cloudpickle); those of modules are imported by workers, from
where the driver has them if there is such a folder on the worker's machine. A worker unpacks a program once and keeps
it until it sees another.
"""

from __future__ import annotations

import base64
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from suiro.spark import Pace, SinkOptions, SourceOptions
from suiro.streams.spark.plan import Plan
from suiro.streams.spark.rebuild import Boundary
from suiro.streams.task import TaskSettings

__all__ = ["Program", "load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`run` is new at every start: what a worker cached for another run is not for this one.

    `clock_ms`: how often the wall clock must come by; None where nothing waits for it. `boundary`: of a rebuild.
    `pace`: has a say in where micro-batches end; picklable, since it is asked in another process.
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
    pace: Pace | None = None

    @property
    def connection(self) -> tuple[str, Mapping[str, str]]:
        return self.source.bootstrap_servers, self.source.client_settings

    def pack(self) -> str:
        from pyspark import cloudpickle

        program = cloudpickle.dumps(self)  # type: ignore[no-untyped-call]
        packed = pickle.dumps((list(sys.path), program))
        return base64.b85encode(packed).decode()


_loaded: dict[str, Program] = {}


def load(text: str) -> Program:
    found = _loaded.get(text)
    if found is None:
        places, data = pickle.loads(base64.b85decode(text))
        sys.path += [place for place in places if place not in sys.path and Path(place).exists()]
        found = pickle.loads(data)
        assert isinstance(found, Program)
        if len(_loaded) > 8:
            _loaded.clear()
        _loaded[text] = found
    return found
