"""`exactly_once` without Spark: which calls it lets through."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from suiro.errors import UsageError
from suiro.spark import sink
from suiro.spark.foreach_batch import exactly_once


class Rows:
    """A DataFrame without rows, in a query's micro-batch."""

    schema = SimpleNamespace(fields=[])

    def __init__(self, run_id: str) -> None:
        properties = {"sql.streaming.queryId": "q", "spark.jobGroup.id": run_id}
        context = SimpleNamespace(getLocalProperty=properties.get)
        self.sparkSession = SimpleNamespace(sparkContext=context)

    def mapInArrow(self, *_: Any) -> Rows:
        return self

    def collect(self) -> list[Any]:
        return []


def test_a_second_call_in_one_micro_batch_is_refused_and_not_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its rows would vanish: Kafka holds the marker of this very micro-batch already."""
    committed: list[int] = []

    def commit(_messages: Any, batch_id: int, _options: Any) -> None:
        if batch_id == 9:
            raise RuntimeError("Kafka is away")
        committed.append(batch_id)

    monkeypatch.setattr(sink, "commit_micro_batch", commit)
    monkeypatch.setattr(sink, "check_schema", lambda *_: None)
    options = {"kafka.bootstrap.servers": "b:1", "checkpointLocation": "/c", "topic": "t"}
    write = exactly_once(options | {"application.id": "twice"})
    other = exactly_once(options | {"application.id": "another"})
    write(Rows("r"), 0)
    with pytest.raises(UsageError, match="called twice for micro-batch 0"):
        write(Rows("r"), 0)
    other(Rows("r"), 0)
    write(Rows("r"), 1)
    write(Rows("after a restart"), 1)
    for _ in range(2):  # one that failed may be tried again
        with pytest.raises(RuntimeError):
            write(Rows("after a restart"), 9)
    assert committed == [0, 0, 1, 1]
