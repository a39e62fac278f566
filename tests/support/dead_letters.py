"""Topics of dead letters: some are put in, and what a reader with read_committed finds."""

from __future__ import annotations

from suiro.client import Client
from suiro.console.records import LogRecord, Start, read_records
from suiro.protocol.records import Record, encode_batch
from suiro.streams.records import Origin
from suiro.streams.sources import dead_letter_headers

Headers = tuple[tuple[str, bytes | None], ...]


def of_streams(topic: str, partition: int = 0, offset: int = 0, reason: str = "bad") -> Headers:
    return dead_letter_headers(ValueError(reason), Origin(topic, partition, offset, 1))


def put_aside(client: Client, topic: str, *letters: tuple[bytes, Headers], partition: int = 0) -> None:
    records = [
        Record(offset=at, timestamp=1_000 + at, key=b"key-" + value[:10], value=value, headers=headers)
        for at, (value, headers) in enumerate(letters)
    ]
    client.produce({(topic, partition): encode_batch(records)})


def committed(client: Client, topic: str) -> list[LogRecord]:
    return list(read_records(client, topic, start=Start(kind="earliest")))


def values(client: Client, topic: str) -> list[bytes | None]:
    return [record.value for record in committed(client, topic)]
