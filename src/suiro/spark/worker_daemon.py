"""PySpark's daemon with our imports done once. Workers are forked from it in 5 ms instead of 1 s.

Spark starts it as `python -m suiro.spark.worker_daemon pyspark.worker` (setting `spark.python.daemon.module`). It
imports only; nothing here may open a connection or start a thread, since the workers would share it.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from suiro.spark.python_stub import LOG
from suiro.spark.worker_pool import serve

P = ParamSpec("P")
T = TypeVar("T")

PRELOADED = (
    "pandas",  # PySpark's Arrow serializers import it
    "pyarrow",
    "pyarrow.compute",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.streaming.stateful_processor_util",
    "suiro.client",
    "suiro.protocol.columnar",
    "suiro.spark.encoding",
    "suiro.spark.reading",
    "suiro.spark.sink",
    "suiro.spark.source",
    # 0.2 s of CPU once for all workers, where each would pay it in the first micro-batch of a topology.
    "suiro.streams_spark.stream_task",
    "suiro.streams_spark.source_task",
)

COLLECTED_AT = (50_000, 20, 20)
"""When a worker collects garbage within a task. A block of records is tens of thousands of objects that are all in use:
looking at them every 700 objects, as Python does, takes a fifth of a task's time."""


CLOSED = (ConnectionError, EOFError)
"""Errors of reading from and writing to a connection that Spark has closed."""


def is_closed(error: BaseException | None) -> bool:
    """Whether Spark has closed the connection, or was gone before a process could open it."""
    return isinstance(error, CLOSED) or str(error).startswith("[CANNOT_OPEN_SOCKET]")


def ends_with_its_task(run: Callable[P, T]) -> Callable[P, T]:
    """Spark closes the connection of a Python process when a query stops. PySpark prints a traceback then, in the
    middle of what the user reads; the process only has to end."""

    def quietly(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return run(*arguments, **named)
        except Exception as error:
            if not is_closed(error):
                raise
            os._exit(1)

    return quietly


def print_other_exceptions() -> None:
    """Of a forked worker."""
    if not is_closed(sys.exception()):
        traceback.print_exc()


def prints_into_log(run: Callable[P, T]) -> Callable[P, T]:
    """Sends a worker's output to where its errors go. Spark would send it to the JVM's output, which several programs
    share."""

    def redirected(*arguments: P.args, **named: P.kwargs) -> T:
        if LOG in os.environ:
            os.dup2(2, 1)
        return run(*arguments, **named)

    return redirected


if __name__ == "__main__":
    from pyspark import daemon

    for name in PRELOADED:
        importlib.import_module(name)
    # Each worker's first task forgets what every importer knows, and reads pyspark.zip again for each package in it.
    for path in [path for path in sys.path_importer_cache if ".zip" in path]:
        del sys.path_importer_cache[path]
    # A worker collects garbage after every task. To go through the imported modules would take 100 ms each time.
    gc.freeze()
    gc.set_threshold(*COLLECTED_AT)
    serve(prints_into_log(ends_with_its_task(daemon.worker)), print_other_exceptions)
