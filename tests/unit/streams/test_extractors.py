"""Timestamp extractors: which time of a record is its event time."""

from __future__ import annotations

import logging
from datetime import date, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from suiro.streams import (
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    ProcessingError,
    SourceRecord,
    StreamsBuilder,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
    field_timestamp,
    serdes,
)
from suiro.testing import TopologyTestDriver


def record(timestamp: int = 5, value: Any = None) -> SourceRecord:
    return SourceRecord(topic="in", partition=2, offset=7, timestamp=timestamp, key="k", value=value)


@pytest.mark.parametrize(
    "extractor",
    [FailOnInvalidTimestamp(), LogAndSkipOnInvalidTimestamp(), UsePartitionTimeOnInvalidTimestamp()],
)
def test_a_valid_timestamp_is_taken(extractor: Any) -> None:
    assert extractor.extract(record(0), 100) == 0


def test_an_invalid_one_fails() -> None:
    with pytest.raises(ProcessingError, match="record in-2 offset 7 has the timestamp -1"):
        FailOnInvalidTimestamp().extract(record(-1), 100)


def test_an_invalid_one_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert LogAndSkipOnInvalidTimestamp().extract(record(-3), 100) < 0
    assert "record in-2 offset 7 is left out" in caplog.text


def test_partition_time_stands_in() -> None:
    assert UsePartitionTimeOnInvalidTimestamp().extract(record(-1), 100) == 100
    with pytest.raises(ProcessingError, match="no time yet"):
        UsePartitionTimeOnInvalidTimestamp().extract(record(-1), -1)


def test_wall_clock() -> None:
    assert WallclockTimestampExtractor().extract(record(), -1) > 1_700_000_000_000


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (1_500, 1_500),
        (-1, -1),
        ("1970-01-01T00:00:01.5", 1_500),
        ("1970-01-01T01:00:00+01:00", 0),
        (datetime(1970, 1, 2), 86_400_000),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_000), -1),
        (date(1970, 1, 2), 86_400_000),
    ],
)
def test_field(found: Any, expected: int) -> None:
    extractor = field_timestamp("at")
    assert extractor.extract(record(value={"at": found}), -1) == expected
    assert extractor.extract(record(value=SimpleNamespace(at=found)), -1) == expected


@pytest.mark.parametrize("value", [{}, {"at": None}, {"at": "soon"}, {"at": True}, {"at": 1.5}, None])
def test_field_without_a_time(value: Any) -> None:
    with pytest.raises(ProcessingError, match="no timestamp in its field 'at'"):
        field_timestamp("at").extract(record(value=value), -1)


def test_in_a_topology() -> None:
    def two_later(source: SourceRecord, partition_time: int) -> int:
        return partition_time + 2

    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    builder.stream("a", timestamp=field_timestamp("at")).to("out-a")
    builder.stream("b", timestamp=two_later).to("out-b")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("a").pipe_input("k", {"at": 77}, 5)
        for _ in range(2):
            driver.create_input_topic("b").pipe_input("k", {}, 5)
        a, b = (driver.create_output_topic(topic).read_records_to_list() for topic in ("out-a", "out-b"))
    assert [found.timestamp for found in a] == [77]
    assert [found.timestamp for found in b] == [1, 3]
