"""The values of a topology: records, table changes, windowed keys. Independent of Spark.

An operator makes one for each record, so they are msgspec's structs: they are as immutable as frozen dataclasses, and
made in a seventh of the time.
"""

from __future__ import annotations

from typing import Any

import msgspec

LATEST_MS = (1 << 63) - 1
"""The latest time that Kafka has."""

Headers = tuple[tuple[str, bytes | None], ...]


class Record(msgspec.Struct, frozen=True):
    """`timestamp` is event time in ms since the epoch. Between table operators `value` is a `Change`. `with_key`,
    `with_value`, `with_timestamp` and `with_headers` return a copy with another one."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()

    def with_key(self, key: Any) -> Record:
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record:
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record:
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record:
        return Record(self.key, self.value, self.timestamp, headers)


class Change(msgspec.Struct, frozen=True):
    """An update of a table's row. `old` is None where there was no row, and where the table does not know old values.

    `is_latest` is False for an update of a versioned table that is older than the row's latest version.
    """

    new: Any
    old: Any = None
    is_latest: bool = True


class Windowed(msgspec.Struct, frozen=True, order=True):
    """A key in a window, ms. `end` is exclusive for time windows, inclusive for sliding and session windows."""

    key: Any
    start: int
    end: int


class Origin(msgspec.Struct, frozen=True):
    """Where the record in hand came from; None outside of a record (a punctuation)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: Headers = ()
