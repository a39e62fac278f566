"""Progress in a consumer group, for tools that show lag: what becomes of it is no matter of the query's."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from suiro.errors import HostNotFoundError
from suiro.spark.offsets import Positions
from suiro.spark.options import SourceOptions
from suiro.spark.source import StreamReader
from tests.unit.spark.test_planning import ID, Log

A0 = ("a", 0)


class Grouped(Log):
    def __init__(self, failure: Exception) -> None:
        super().__init__({A0: (0, 7)})
        self.refusal: Exception | None = failure
        self.committed: list[Any] = []

    def offset_commit(self, group: str, offsets: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.committed.append((group, offsets))


def reader(log: Grouped) -> StreamReader:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "kafka.group.id": "told"}
    made = StreamReader(SourceOptions.parse(options))
    made._client = log
    return made


def test_a_broker_whose_name_is_gone_for_a_moment_does_not_end_the_query() -> None:
    log = Grouped(HostNotFoundError("h: no such host"))
    stream = reader(log)
    start = Positions(offsets={A0: 5}, topic_ids={"a": ID.hex}).to_json()
    assert stream.latestOffset(start, ReadAllAvailable())["a"] == {"0": 7}
    log.refusal = None
    stream.latestOffset(start, ReadAllAvailable())
    assert log.committed == [("told", {A0: (5, "")})]
