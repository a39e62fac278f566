"""Topics: the list, one topic, and changes to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from suiro.client import Client
from suiro.console.topics import (
    DEFAULT,
    TopicDetails,
    alter_topic,
    create_topic,
    delete_records,
    delete_topics,
    describe_topic,
)
from suiro.console.web.api.applications import Related, related_to
from suiro.console.web.endpoint import Body, Call, ConfirmBody, fields_of, get, number_of, post, require_confirmed
from suiro.console.web.model import GroupNow
from suiro.errors import UsageError
from suiro.foundation.http import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPage(TopicDetails):
    groups: tuple[GroupNow, ...]
    related: tuple[Related, ...]
    history: tuple[tuple[int, float], ...]


class NewTopicBody(Body):
    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    configs: dict[str, str] = msgspec.field(default_factory=dict)


class AlterBody(Body):
    partitions: int | None = None
    configs: dict[str, str | None] = msgspec.field(default_factory=dict)


class DeleteRecordsBody(Body):
    """`before`: offsets by partition; without it, all records."""

    confirm: str
    before: dict[str, int] | None = None


@get("/topics", from_memory=True)
def _list(call: Call) -> bytes:
    """All topics."""
    return call.console.model.topics_json


@get("/topics/{topic}")
def _one(call: Call, client: Client) -> TopicPage:
    """A topic: partitions, settings, who reads it."""
    name = call.path["topic"]
    found = describe_topic(client, name)
    model = call.console.model
    return TopicPage(
        **fields_of(found),
        groups=tuple(one for one in model.groups.values() if name in one.topics),
        related=tuple(related_to(call, name)),
        history=model.topic_history(name),
    )


@post("/topics", Role.OPERATOR, NewTopicBody)
def _create(call: Call, client: Client) -> Mapping[str, Any]:
    """Create a topic; what is not said is as the brokers have it."""
    body: NewTopicBody = call.body
    create_topic(client, **msgspec.structs.asdict(body))
    call.console.model.look_again()
    return {"name": body.name}


@post("/topics/{topic}/alter", Role.OPERATOR, AlterBody)
def _alter(call: Call, client: Client) -> Mapping[str, Any]:
    """Add partitions, change settings; null takes a setting away."""
    body: AlterBody = call.body
    if body.partitions is None and not body.configs:
        raise UsageError('nothing is to be changed; give "partitions" or "configs"')
    alter_topic(client, call.path["topic"], partitions=body.partitions, configs=body.configs)
    call.console.model.look_again()
    return {"name": call.path["topic"]}


@post("/topics/{topic}/delete-records", Role.ADMIN, DeleteRecordsBody)
def _delete_records(call: Call, client: Client) -> Mapping[str, Any]:
    """Delete the records before an offset of each partition, or all."""
    name, body = call.path["topic"], call.body
    require_confirmed(body.confirm, name)
    before = None
    if body.before is not None:
        before = {}
        for partition, offset in body.before.items():
            if offset < 0:
                raise UsageError(f'"before" has offsets by partition, not {partition[:80]!r}: {offset}')
            before[number_of("before", partition)] = offset
    found = delete_records(client, name, before)
    call.console.model.look_again()
    return {"name": name, "first_offsets": {str(partition): offset for partition, offset in found.items()}}


@post("/topics/{topic}/delete", Role.ADMIN, ConfirmBody)
def _delete(call: Call, client: Client) -> Mapping[str, Any]:
    """Delete a topic."""
    name = call.path["topic"]
    require_confirmed(call.body.confirm, name)
    delete_topics(client, [name])
    call.console.model.look_again()
    return {"name": name}
