"""The stateful operator that Spark runs for all tasks of one level. `run_task` does its work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from suiro.streams_spark.program import load
from suiro.streams_spark.shuffle_message import STAGED, Row
from suiro.streams_spark.state_log import SparkState, StateCache, StateLog

if TYPE_CHECKING:
    import pandas as pd

_cache = StateCache()


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
        messages = [bytes(data) for frame in rows for data in frame.iloc[:, -1]]
        if number == STAGED:
            yield _frame([(number, partition, data) for data in messages])
            return
        program = load(self._text)
        if program.plan.subs[number].level != self._level:
            yield _frame([(number, partition, data) for data in messages])
            return
        log = StateLog(self._state, _cache, (program.run, number, partition))
        with StageOfTask(program.sink) as stage:
            found = run_task(program, number, partition, messages, log, Topics(stage))
        if found:
            yield _frame(found)

    def close(self) -> None:
        pass


def _frame(rows: list[Row]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, columns=["sub", "bucket", "message"])
