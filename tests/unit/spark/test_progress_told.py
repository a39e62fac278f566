"""Progress in a consumer group, for tools that show lag: what becomes of it is no matter of the query's."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from suiro.errors import HostNotFoundError, RefusedError
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
        self.asked = 0

    def offset_commit(self, group: str, offsets: Any) -> None:
        self.asked += 1
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


def test_a_group_that_the_user_may_not_commit_to_is_told_once_and_does_not_end_the_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Grouped(RefusedError("no permission for the group", "GROUP_AUTHORIZATION_FAILED"))
    stream = reader(log)
    with caplog.at_level(logging.WARNING):
        for offset in (4, 5, 5, 6):
            start = Positions(offsets={A0: offset}, topic_ids={"a": ID.hex}).to_json()
            assert stream.latestOffset(start, ReadAllAvailable())["a"] == {"0": 7}
    assert log.asked == 3, "once for each progress"
    (told,) = caplog.messages
    assert "GROUP_AUTHORIZATION_FAILED" in told
    log.refusal = None
    stream.latestOffset(Positions(offsets={A0: 7}, topic_ids={"a": ID.hex}).to_json(), ReadAllAvailable())
    assert log.committed == [("told", {A0: (7, "")})]
