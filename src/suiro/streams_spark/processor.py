"""The stateful operator that Spark runs for all tasks of one level. `run_task` does its work."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from suiro.streams_spark.program import load
from suiro.streams_spark.shuffle_message import STAGED, Row, in_batches
from suiro.streams_spark.state_log import SparkState, StateCache, StateLog

if TYPE_CHECKING:
    import pandas as pd

_LOCAL = re.compile(r"local\[(\d+)")


class TaskProcessor(StatefulProcessor):
    """Runs the tasks of one level. Rows for other levels pass."""

    def __init__(self, program: str, level: int) -> None:
        self._text = program
        self._level = level

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = SparkState(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        # These are imported only where a task runs: Spark also makes a processor to learn of its state.
        from suiro.spark import StageOfTask
        from suiro.streams_spark.outputs import Topics
        from suiro.streams_spark.run_task import run_task

        number, partition = int(key[0]), int(key[1])
        messages = (bytes(data) for frame in rows for data in frame.iloc[:, -1])
        program = load(self._text)
        if number == STAGED or program.plan.subs[number].level != self._level:
            yield from _frames((number, partition, data) for data in messages)
            return
        log = StateLog(self._state, _cache(), (program.run, number, partition))
        with StageOfTask(program.sink) as stage:
            yield from _frames(run_task(program, number, partition, messages, log, Topics(stage)))

    def close(self) -> None:
        pass


@cache
def _cache() -> StateCache:
    """Of this process. The machine has as many workers as Spark has cores there."""
    from pyspark import TaskContext

    context = TaskContext.get()
    local = _LOCAL.match(str(context and context.getLocalProperty("spark.master")))
    cpus = os.cpu_count() or 1
    return StateCache(workers=min(int(local[1]), cpus) if local else cpus)


def _frames(rows: Iterable[Row]) -> Iterator[pd.DataFrame]:
    import pandas as pd

    for some in in_batches(rows):
        yield pd.DataFrame(some, columns=["sub", "bucket", "message"])
