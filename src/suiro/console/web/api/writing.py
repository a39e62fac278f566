"""Records that are written: by a user, or copied from another topic."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from suiro.client import Client
from suiro.console.formats import encoder
from suiro.console.records import OutgoingRecord, produce_one
from suiro.console.topics import topic_info
from suiro.console.web.api.records import entry_at
from suiro.console.web.endpoint import Body, Call, post
from suiro.console.web.record_json import RecordView
from suiro.errors import UsageError
from suiro.foundation.http import Role


class ProduceBody(Body):
    key: str | None
    value: str | None
    key_format: str = "string"
    value_format: str = "json"
    headers: dict[str, str | None] = msgspec.field(default_factory=dict)
    partition: int | None = None
    timestamp: int | None = None


class CopyBody(Body):
    partition: int
    offset: int
    to: str


@post("/topics/{topic}/records", Role.OPERATOR, ProduceBody)
def _produce(call: Call, client: Client) -> Mapping[str, int]:
    """Write a record."""
    topic, body = call.path["topic"], call.body
    registry = call.console.settings.registry
    record = OutgoingRecord(
        key=encoder(body.key_format, registry, subject=f"{topic}-key")(body.key),
        value=encoder(body.value_format, registry, subject=f"{topic}-value")(body.value),
        headers=tuple((name, None if text is None else text.encode()) for name, text in body.headers.items()),
        partition=body.partition,
        timestamp=body.timestamp,
    )
    return _written(call, client, topic, record)


@post("/topics/{topic}/copy", Role.OPERATOR, CopyBody)
def _copy(call: Call, client: Client) -> Mapping[str, int]:
    """Copy a record to another topic, as it stands.

    As it stands: bytes, headers, timestamp; the partition by its key.
    """
    topic, body = call.path["topic"], call.body
    record = entry_at(client, topic, body.partition, body.offset).record
    if RecordView(call, topic).hidden_paths(record):
        raise UsageError(f"this record of {topic!r} has masked fields: only an admin copies it")
    outgoing = OutgoingRecord(
        key=record.key, value=record.value, headers=record.headers, timestamp=max(record.timestamp, 0)
    )
    return _written(call, client, body.to, outgoing)


def _written(call: Call, client: Client, topic: str, record: OutgoingRecord) -> Mapping[str, int]:
    if topic_info(client, topic).internal:
        raise UsageError(f"topic {topic!r} is internal to Kafka: nobody but the brokers writes to it")
    partition, offset = produce_one(client, topic, record, clock=call.console.clock)
    return {"partition": partition, "offset": offset}
