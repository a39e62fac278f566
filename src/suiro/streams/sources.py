"""Converts bytes of a log to records: deserializes, extracts the event time, or skips (Kafka Streams' `RecordQueue`).

The timestamp extractor is given the partition's time before the record. A record with a negative timestamp, and one
that cannot be deserialised where the policy is to skip, is dropped and counted; both do not move any time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

from suiro.errors import ConfigError, RegistryError
from suiro.foundation.types import TopicPartition
from suiro.streams.errors import ProcessingError, described, in_a_line, said
from suiro.streams.extractors import FailOnInvalidTimestamp, SourceRecord
from suiro.streams.records import LATEST_MS, Change, Headers, Origin, Record, Windowed
from suiro.streams.serdes import natural
from suiro.streams.serdes.block_forms import decode_rows
from suiro.streams.times import UNKNOWN
from suiro.streams.topology.nodes import Node, Repartition, Source

if TYPE_CHECKING:
    import pyarrow as pa


MESSAGE_CHARS_MAX = 4_096
"""The most characters of an error's message in a dead letter's headers. The message may quote the record."""
OF_AN_OPERATOR = ("__streams.errors.stage", b"processing")
"""The header of a dead letter with the record that an operator got, which may not be what its source topic has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record for a topic of records that could not be read or processed: as it was in the log, or as it came to the
    operator that failed (`letter_of`)."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class SourceReader:
    """Reads the records of one `Source`, or of a `Repartition`, in one task."""

    def __init__(
        self,
        node: Node,
        *,
        on_deserialization_error: str = "fail",
        drop: Callable[[str], None],
        dead_letter: Callable[[DeadLetter], None],
    ) -> None:
        operator = node.operator
        assert isinstance(operator, Source | Repartition)
        self._node = node
        self._key, self._value = operator.key, operator.value
        own = operator if isinstance(operator, Source) else None
        self._policy = (own and own.on_deserialization_error) or on_deserialization_error
        extractor = (own and own.timestamp) or FailOnInvalidTimestamp()
        self._ask: Any = getattr(extractor, "extract", extractor)
        # What nearly all sources have needs no object per record.
        self._plain = isinstance(extractor, FailOnInvalidTimestamp)
        self._drop = drop
        self._dead_letter = dead_letter
        self._times: dict[TopicPartition, int] = {}

    @property
    def has_extractor(self) -> bool:
        """True if the extractor may give other times than those of the records."""
        return not self._plain

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        extracted: int | None = None,
        decoded: tuple[Any, Any] | None = None,
    ) -> Record | None:
        """Returns the record; None if it is left out. `extracted`, `decoded`: the event time, and key and value, of a
        record that was read before."""
        try:
            if decoded is None:
                read_key = None if key is None else self._key.deserialize(topic, key)
                read_value = None if value is None else self._value.deserialize(topic, value)
            else:
                read_key, read_value = decoded
        except (RegistryError, ConfigError):
            raise  # nothing is wrong with the record: the registry is down, or was not named
        except Exception as error:  # noqa: BLE001 - a user's serde raises anything
            self._undecodable(error, Origin(topic, partition, offset, timestamp, headers), key, value)
            return None
        if extracted is None:
            extracted = self._event_time(topic, partition, offset, timestamp, read_key, read_value, headers)
            if extracted is None:
                return None
        return Record(read_key, read_value, extracted, headers)

    def read_sound(
        self,
        topic: str,
        partition: int,
        columns: pa.RecordBatch,
        headers: Sequence[Headers] | None,
        *,
        takes_all: bool,
    ) -> tuple[list[Any], list[Any], Sequence[int | None]] | None:
        """Returns keys, values and event times (None: left out) of the records of one input partition if all can be
        deserialised. Otherwise returns None and has changed nothing. `takes_all`: no record will be read again. Only
        then is an extractor asked, because it is given the time of the records before."""
        timestamps = columns.column("timestamp").to_pylist()
        is_plain = self._plain and min(timestamps, default=0) >= 0  # then they are the event times
        if not (is_plain or takes_all):
            return None
        keys, bad_keys = decode_rows(self._key, columns.column("key").to_pylist(), topic)
        values, bad_values = decode_rows(self._value, columns.column("value").to_pylist(), topic)
        if bad_keys or bad_values:
            return None
        if is_plain:
            if timestamps:
                self._passed_to(topic, partition, max(timestamps))
            return keys, values, timestamps
        times = [
            self._event_time(topic, partition, *row)
            for row in zip(
                columns.column("offset").to_pylist(),
                timestamps,
                keys,
                values,
                repeat(()) if headers is None else headers,
                strict=False,
            )
        ]
        return keys, values, times

    def state(self) -> dict[TopicPartition, int]:
        """Returns the partition times by (topic, partition)."""
        return dict(self._times)

    def restore(self, times: Iterable[tuple[TopicPartition, int]]) -> None:
        self._times.update(times)

    def _event_time(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        key: Any,
        value: Any,
        headers: Headers,
    ) -> int | None:
        """Returns the event time of a record; None if the record is left out."""
        if self._plain and timestamp >= 0:
            extracted = timestamp
        else:
            source = SourceRecord(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp=timestamp,
                key=key,
                value=value,
                headers=headers,
            )
            extracted = self._extract(source, self._times.get((topic, partition), UNKNOWN))
        if extracted < 0:
            self._drop("negative timestamp")
            return None
        self._passed_to(topic, partition, extracted)
        return extracted

    def _passed_to(self, topic: str, partition: int, time: int) -> None:
        place = (topic, partition)
        if time > self._times.get(place, UNKNOWN):
            self._times[place] = time

    def _extract(self, source: SourceRecord, partition_time: int) -> int:
        try:
            extracted = self._ask(source, partition_time)
        except Exception as error:
            raise ProcessingError(
                f"the timestamp extractor of {self._node.name} failed on the record of {_where(source)}: "
                f"{described(error)}"
            ) from error
        if isinstance(extracted, bool) or not isinstance(extracted, int):
            raise ProcessingError(
                f"the timestamp extractor of {self._node.name} gave {extracted!r} for the record of "
                f"{_where(source)}; it must give an int, ms since the epoch"
            )
        if extracted > LATEST_MS:
            raise ProcessingError(
                f"the timestamp extractor of {self._node.name} gave {extracted} for the record of {_where(source)}, "
                "which does not fit into 64 bits; give a negative number to leave the record out"
            )
        return extracted

    def _undecodable(self, error: Exception, origin: Origin, key: bytes | None, value: bytes | None) -> None:
        if self._policy == "fail":
            raise ProcessingError(
                f"the record of {origin.topic}-{origin.partition} offset {origin.offset} cannot be read by "
                f"{self._node.name}: {in_a_line(error)}. To go on without it, set "
                'on_deserialization_error to "skip" or "dead-letter:<topic>"'
            ) from error
        self._drop("deserialization error")
        if self._policy.startswith("dead-letter:"):
            self._dead_letter(
                DeadLetter(
                    topic=self._policy.removeprefix("dead-letter:"),
                    key=key,
                    value=value,
                    timestamp=origin.timestamp,
                    headers=(*origin.headers, *dead_letter_headers(error, origin)),
                )
            )


def _where(source: SourceRecord) -> str:
    return f"{source.topic}-{source.partition} offset {source.offset}, key {source.key!r}"


def letter_of(topic: str, record: Record, origin: Origin | None, error: Exception) -> DeadLetter:
    """Returns a dead letter for a record that an operator could not process; for a table's update, with the new row.
    `origin`: None if it is not known. A header says that this is not the record of the source."""
    added = dead_letter_headers(error, origin or Origin("", -1, -1, record.timestamp))
    return DeadLetter(
        topic=topic,
        key=_readable(topic, record.key.key if isinstance(record.key, Windowed) else record.key),
        value=_readable(topic, record.value.new if isinstance(record.value, Change) else record.value),
        timestamp=record.timestamp,
        headers=(*record.headers, OF_AN_OPERATOR, *added),
    )


def _readable(topic: str, value: Any) -> bytes | None:
    """Returns the bytes of `serdes.natural`. A value that it cannot write (a date in a dict, half of a surrogate pair)
    becomes JSON with texts in its place, or the text that Python shows. It must not fail: that a value cannot be
    written may be why its record is a dead letter."""
    if value is None:
        return None
    with suppress(Exception):  # the value is the user's
        return natural.serialize(topic, value)
    with suppress(Exception):
        return json.dumps(value, default=str).encode()
    with suppress(Exception):
        return repr(value).encode("utf-8", "backslashreplace")
    return f"({type(value).__qualname__})".encode("utf-8", "backslashreplace")


def dead_letter_headers(error: BaseException, origin: Origin) -> Headers:
    """Returns reason and origin under the names that Kafka Streams uses (KIP-1034)."""
    return (
        ("__streams.errors.exception", type(error).__name__.encode()),
        ("__streams.errors.message", said(error)[:MESSAGE_CHARS_MAX].encode()),
        ("__streams.errors.topic", origin.topic.encode()),
        ("__streams.errors.partition", str(origin.partition).encode()),
        ("__streams.errors.offset", str(origin.offset).encode()),
        ("__streams.errors.timestamp", str(origin.timestamp).encode()),
    )
