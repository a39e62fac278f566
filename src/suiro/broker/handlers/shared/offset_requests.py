"""Parts of the requests about offsets: the topics that they name, which offsets may be committed, committing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from suiro.broker.coordination.groups.records import OffsetValue
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation, ResourceType
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.broker.context import BrokerContext
    from suiro.broker.exchange import Exchange


def commit_known(
    broker: BrokerContext,
    group_id: str,
    entries: Mapping[TopicPartition, Any],
    *,
    producer: tuple[int, int] | None = None,
    retention_ms: int | None = None,
) -> dict[TopicPartition, ErrorCode]:
    """Commit a request's entries for partitions that exist. The code of each."""
    now = broker.clock.wall_ms()
    codes: dict[TopicPartition, ErrorCode] = {}
    accepted: dict[TopicPartition, OffsetValue] = {}
    for place, entry in entries.items():
        metadata = entry.committed_metadata or ""
        if len(metadata.encode("utf-16-le")) // 2 > broker.settings.offset_metadata_max_bytes:
            codes[place] = ErrorCode.offset_metadata_too_large
            continue
        codes[place] = ErrorCode.none
        topic = broker.topics.topic(place[0])
        accepted[place] = OffsetValue(
            offset=entry.committed_offset,
            leader_epoch=getattr(entry, "committed_leader_epoch", -1),
            metadata=metadata,
            commit_ms=now,
            expire_ms=None if retention_ms is None else now + retention_ms,
            topic_id=topic.topic_id if topic is not None and producer is None else None,
        )
    try:
        broker.groups.offsets.commit(group_id, accepted, producer=producer)
    except RefusedError as refusal:
        codes.update(dict.fromkeys(accepted, refusal.code))
    return codes


def topic_named(exchange: Exchange, topic: Any, operation: Operation) -> tuple[str, ErrorCode]:
    """The name of a topic of OffsetCommit or OffsetFetch, and whether the client may do this with it. Newer versions
    name topics by id."""
    name = getattr(topic, "name", None)
    if name is None:
        found = exchange.broker.topics.topic_by_id(topic.topic_id)
        if found is None:
            return "", ErrorCode.unknown_topic_id
        name = found.name
    if not exchange.may(operation, ResourceType.TOPIC, name):
        return name, ErrorCode.topic_authorization_failed
    return name, ErrorCode.none


def topic_id_of(broker: BrokerContext, name: str) -> UUID:
    """Of a topic that exists."""
    topic = broker.topics.topic(name)
    assert topic is not None
    return topic.topic_id


def refuse_all(topics: Any, code: ErrorCode) -> dict[TopicPartition, ErrorCode]:
    """The same code for every partition of a request."""
    return {(topic.name, entry.partition_index): code for topic in topics for entry in topic.partitions}
