"""Timestamp extractors: they return the event time of a record. Pass one as `timestamp=` to `stream` or `table`.

An extractor is an object with `extract(record, partition_time) -> int`, or a callable with these parameters; ms since
the epoch. `partition_time` is the latest event time of the partition before this record, -1 at first. A record with a
negative timestamp is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Protocol, runtime_checkable

import msgspec

from suiro.clock import SystemClock
from suiro.streams.errors import ProcessingError
from suiro.streams.records import Headers

_log = logging.getLogger(__name__)


class SourceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a topic, deserialised, before it has an event time. `timestamp` is the log's."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers = ()

    def __str__(self) -> str:
        return f"record {self.topic}-{self.partition} offset {self.offset}"


@runtime_checkable
class TimestampExtractor(Protocol):
    """An object with `extract(record, partition_time)`, which returns the timestamp of a record in ms."""

    def extract(self, record: SourceRecord, partition_time: int) -> int: ...


@dataclass(frozen=True, slots=True)
class FailOnInvalidTimestamp:
    """The log's timestamp; a negative one stops the application. The default."""

    def extract(self, record: SourceRecord, partition_time: int) -> int:
        if record.timestamp < 0:
            raise ProcessingError(
                f"{record} has the timestamp {record.timestamp}, which is not a valid time; fix its producer, or give "
                "the source another extractor (timestamp=LogAndSkipOnInvalidTimestamp())"
            )
        return record.timestamp


@dataclass(frozen=True, slots=True)
class LogAndSkipOnInvalidTimestamp:
    """The log's timestamp; a record with a negative one is left out, with a warning."""

    def extract(self, record: SourceRecord, partition_time: int) -> int:
        if record.timestamp < 0:
            _log.warning("%s is left out: its timestamp is %d", record, record.timestamp)
        return record.timestamp


@dataclass(frozen=True, slots=True)
class UsePartitionTimeOnInvalidTimestamp:
    """The log's timestamp; instead of a negative one, the partition's time so far."""

    def extract(self, record: SourceRecord, partition_time: int) -> int:
        if record.timestamp >= 0:
            return record.timestamp
        if partition_time < 0:
            raise ProcessingError(
                f"{record} has the timestamp {record.timestamp}, and its partition has no time yet; fix its producer, "
                "or give the source another extractor (timestamp=LogAndSkipOnInvalidTimestamp())"
            )
        return partition_time


@dataclass(frozen=True, slots=True)
class WallclockTimestampExtractor:
    """The time of reading the record. A replay gives another time, and so does a micro-batch that runs again after a
    crash: results are written once, but the state and later results may have the later time."""

    def extract(self, record: SourceRecord, partition_time: int) -> int:
        return SystemClock().wall_ms()


@dataclass(frozen=True, slots=True)
class FieldTimestamp:
    """A field of the value: ms as an int, a `datetime`, a `date` or text in ISO 8601; without a zone it is UTC."""

    field: str

    def extract(self, record: SourceRecord, partition_time: int) -> int:
        value = record.value
        found = value.get(self.field) if isinstance(value, Mapping) else getattr(value, self.field, None)
        try:
            return _ms(found)
        except (TypeError, ValueError):
            raise ProcessingError(
                f"{record} has no timestamp in its field {self.field!r}: {found!r}; give ms as an int, a datetime or "
                "text in ISO 8601"
            ) from None


def field_timestamp(field: str) -> FieldTimestamp:
    """`builder.stream("flights", value=serdes.json, timestamp=field_timestamp("departed"))`."""
    return FieldTimestamp(field)


def _ms(found: Any) -> int:
    match found:
        case bool():
            raise TypeError
        case int():
            return found
        case str():
            moment = datetime.fromisoformat(found)
        case datetime():
            moment = found
        case date():
            moment = datetime(found.year, found.month, found.day)
        case _:
            raise TypeError
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
