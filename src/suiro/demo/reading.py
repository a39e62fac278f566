"""Reads the topics for the check, from the start, with an independent read_committed consumer (confluent-kafka).

Avro is decoded by `fastavro`, with the schemas that the records name. Records are processed one by one and not kept.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import fastavro
import msgspec
from confluent_kafka import Consumer, KafkaError, TopicPartition

from suiro.client import EARLIEST, LATEST, Client
from suiro.clock import monotonic_s
from suiro.demo.expected import Row
from suiro.demo.names import CAPTURED, REJECTED, VALIDATED
from suiro.errors import FatalError
from suiro.protocol.record_batch import iter_headers
from suiro.registry import RegistryClient

READ_TIMEOUT_S = 120
CONSUME_RECORDS = 10_000
AVRO = frozenset({*CAPTURED, VALIDATED, REJECTED})
NO_HEADERS: Mapping[str, str] = {}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_json_value = msgspec.json.Decoder().decode


class Read(NamedTuple):
    """One record as a consumer got it (a tuple, because there are more than a million). `value` is None if it is
    missing or cannot be read. `key` is the id of the flight, or the text of the row's key. Only rejected flights have
    `headers`."""

    partition: int
    offset: int
    key: str
    value: Row | None
    headers: Mapping[str, str]


def read(
    bootstrap_servers: str,
    topics: Sequence[str],
    *,
    registry: str,
    is_over: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[str, Read]]:
    """Yields every committed record of `topics` with its topic, in the order of its partition, to the ends that the
    partitions have when `is_over` returns True."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "suiro-demo-check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "queued.min.messages": 200_000,
        }
    )
    known = consumer.list_topics(timeout=READ_TIMEOUT_S).topics
    places = [(topic, partition) for topic in topics for partition in known[topic].partitions]
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
    at_end = dict.fromkeys(places, -1)  # the last reached end of each partition
    ends: dict[tuple[str, int], int] | None = None
    deadline_s = monotonic_s() + READ_TIMEOUT_S
    registry_client = RegistryClient(registry)
    avro = _Avro(registry_client)
    try:
        while ends is None or any(at_end[place] < end for place, end in ends.items()):
            if ends is None and is_over():
                ends = _offsets(bootstrap_servers, places, LATEST, read_committed=True)
            message: Any
            for message in consumer.consume(CONSUME_RECORDS, timeout=0.2):
                error = message.error()
                if error is None:
                    yield message.topic(), _record(message, avro)
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end[message.topic(), message.partition()] = message.offset()
                elif error.fatal() or not error.retriable():
                    raise FatalError(f"reading {message.topic()}: {error.str()}")
                deadline_s = monotonic_s() + READ_TIMEOUT_S
            if ends is not None and monotonic_s() > deadline_s:
                unread = sorted(place for place, end in ends.items() if at_end[place] < end)
                raise FatalError(f"nothing came for {READ_TIMEOUT_S} s, before the end of {unread}")
    finally:
        registry_client.close()
        consumer.close()


def count_uncommitted(bootstrap_servers: str, topics: Sequence[str]) -> int:
    """Counts the records of `topics`, including those of aborted transactions, which `read` does not return. The counts
    are in the headers of batches."""
    count = 0
    with Client(bootstrap_servers) as client:
        places = [
            (name, item.partition) for name, info in client.metadata(list(topics)).items() for item in info.partitions
        ]
        at = _offsets(bootstrap_servers, places, EARLIEST)
        ends = _offsets(bootstrap_servers, places, LATEST)
        while left := {place: offset for place, offset in at.items() if offset < ends[place]}:
            for place, fetched in client.fetch(left, read_committed=False).items():
                for _, header in iter_headers(fetched.data):
                    if header.next_offset > at[place]:
                        at[place] = header.next_offset
                        count += 0 if header.is_control else header.count
    return count


def _offsets(
    bootstrap_servers: str, places: Sequence[tuple[str, int]], which: int, *, read_committed: bool = False
) -> dict[tuple[str, int], int]:
    with Client(bootstrap_servers) as client:
        listed = client.list_offsets(dict.fromkeys(places, which), read_committed=read_committed)
    return {place: item.offset for place, item in listed.items()}


def _record(message: Any, avro: _Avro) -> Read:
    topic, key, value, headers = message.topic(), message.key() or b"", message.value(), NO_HEADERS
    if topic in AVRO:
        id_, row = avro.key(key), None if value is None else avro.row(value)
    else:
        id_, row = key.decode(), None if value is None else _json(value)
    if topic == REJECTED:  # headers of other topics are not compared
        headers = {name: (text or b"").decode() for name, text in message.headers() or ()}
    return Read(message.partition(), message.offset(), id_, row, headers)


def _json(data: bytes) -> Row | None:
    try:
        value = _json_value(data)
    except (msgspec.MsgspecError, ValueError):
        return None
    return value if isinstance(value, dict) else None


class _Avro:
    """Decodes Confluent's wire format: a zero, the schema id in four bytes, the value. Times become texts."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._schemas: dict[bytes, Any] = {}
        self._texts: dict[tuple[int, str], str] = {}

    def row(self, data: bytes) -> Row | None:
        found = self._decoded(data)
        if found is not None and "time_hour" in found:
            found["time_hour"] = self._text(found["time_hour"], "%Y-%m-%dT%H:%M:%SZ")
        return found

    def key(self, data: bytes) -> str:
        key = self._decoded(data)
        if key is None:
            return repr(data)
        if len(key) == 1:
            return str(*key.values())
        moment = key["time_hour"] + key["minute"] * 60_000_000
        return f"{key['carrier']}-{key['flight']}-{key['origin']}-{self._text(moment, '%Y-%m-%dT%H:%MZ')}"

    def _text(self, microseconds: int, form: str) -> str:
        """Returns a time as text. There are few different ones, and formatting each again would take most of the
        time."""
        text = self._texts.get((microseconds, form))
        if text is None:
            at = EPOCH + timedelta(microseconds=microseconds)
            text = self._texts[microseconds, form] = at.strftime(form)
        return text

    def _decoded(self, data: bytes) -> Row | None:
        if len(data) < 5 or data[0] != 0:
            return None
        schema = self._schemas.get(data[:5])
        if schema is None:
            text = self._registry.schema(int.from_bytes(data[1:5], "big")).text
            schema = self._schemas[data[:5]] = fastavro.parse_schema(_plain(json.loads(text)))
        try:
            value = fastavro.schemaless_reader(io.BytesIO(data[5:]), schema, None)
        except (EOFError, ValueError, IndexError):
            return None
        return value if isinstance(value, dict) else None


def _plain(schema: Any) -> Any:
    """Removes logical types, because creating a `datetime` for each of a million times would take most of the time."""
    if isinstance(schema, dict):
        return {name: _plain(value) for name, value in schema.items() if name != "logicalType"}
    return [_plain(item) for item in schema] if isinstance(schema, list) else schema
