"""A task that waits for the log with records staged before: they are not abandoned."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from suiro.errors import FatalError, TransientError
from suiro.foundation.threads import Regularly
from suiro.spark import OffsetRange, SinkOptions, StageOfTask, staging
from suiro.streams import Materialized, StreamsBuilder, serdes
from suiro.streams_spark import input_reader
from suiro.streams_spark.input_reader import range_columns
from suiro.streams_spark.outputs import Topics
from suiro.streams_spark.program import Program
from suiro.streams_spark.run_task import run_task
from suiro.streams_spark.shuffle_message import InputPartition, InputRange, ShuffleMessage, Work
from suiro.streams_spark.source_task import work_rows
from suiro.streams_spark.state_log import StateCache, StateLog
from tests.unit.streams_spark.test_column_task import KAFKA, Engine, Handle

PROPERTIES = {
    "sql.streaming.queryId": "waiting",
    "streaming.sql.batchId": "0",
    "task": "1",
    "task index": "0",
}


class AwayForDays:
    """Its first request fails when the staging directory is as old as it gets. Its second one waits until it is not."""

    is_abandoned = False

    def __init__(self, staging: Path) -> None:
        self._directory = staging / "waiting"
        self._directory.mkdir()
        self.was_asked = False

    def fetch(self, *_: object, **limits: object) -> Any:
        if self.was_asked:
            wait_until(lambda: self._directory.stat().st_mtime > 0, what="a sign of life")
            raise FatalError("kept")
        self.was_asked = True
        os.utime(self._directory, (0, 0))
        raise TransientError("no broker answers")

    def abandon(self) -> None: ...

    list_offsets = fetch


def read_source(program: Program) -> None:
    records = OffsetRange(topic="stream", partition=0, start=0, end=4)
    list(work_rows(program, Work(input_partitions=(InputRange(records=records),)), in_driver=PROPERTIES))


def read_in_the_task(program: Program) -> None:
    records = OffsetRange(topic="stream", partition=0, start=0, end=4)
    message = ShuffleMessage(
        kind="range", input_partition=InputPartition("stream", 0), input="x", columns=range_columns(records)
    )
    with StageOfTask(program.sink, PROPERTIES) as stage:
        list(run_task(program, 0, 0, [message.pack()], StateLog(Handle(), StateCache(), "task"), Topics(stage)))


def rewrite_changelog(program: Program) -> None:
    tick = ShuffleMessage(kind="tick", input_partition=None, rewrites=True).pack()
    with StageOfTask(program.sink, PROPERTIES) as stage:
        list(run_task(program, 0, 0, [tick], StateLog(Handle(), StateCache(), "task"), Topics(stage)))


@pytest.mark.parametrize("work", [read_source, read_in_the_task, rewrite_changelog])
def test_what_a_task_reads_with_for_days_is_not_removed(
    work: Callable[[Program], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=serdes.string, value=serdes.long)
    stream.group_by_key().count(materialized=Materialized.as_("counts")).to_stream().to("out")
    program = Engine(builder.build(), "waits").program
    monkeypatch.setattr(staging, "keeper", Regularly("kept", 0.01, staging._keep_all))
    sink = SinkOptions.parse({**KAFKA, "staging.dir": str(tmp_path)})
    log = AwayForDays(tmp_path)
    for module in (input_reader, import_module("suiro.streams_spark.run_task")):
        monkeypatch.setattr(module, "lease", lambda *_: nullcontext(log))
    with pytest.raises(FatalError, match="kept"):
        work(replace(program, sink=sink))
