"""OffsetForLeaderEpoch: the end offset of a leader epoch, so that a consumer can detect a truncated log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest

    from suiro.broker.exchange import Exchange

_UNKNOWN = (-1, -1)


def handle(exchange: Exchange, request: OffsetForLeaderEpochRequest) -> Answer:
    # A replica asks with a cluster operation for every topic; a consumer needs each topic's DESCRIBE.
    is_replica = exchange.may_on_cluster(Operation.CLUSTER_ACTION)
    topics = tuple(
        exchange.make(
            "OffsetForLeaderTopicResult",
            topic=topic.topic,
            partitions=tuple(_one(exchange, topic.topic, entry, allowed=allowed) for entry in topic.partitions),
        )
        for topic in request.topics
        for allowed in (is_replica or exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic),)
    )
    return exchange.response(topics=topics)


def _one(exchange: Exchange, topic: str, entry: Any, *, allowed: bool) -> Any:
    code, found = ErrorCode.none, _UNKNOWN
    partition = exchange.broker.topics.partition(topic, entry.partition) if allowed else None
    if not allowed:
        code = ErrorCode.topic_authorization_failed
    elif partition is None:
        code = ErrorCode.unknown_topic_or_partition
    else:
        code = partition.check_leader_epoch(entry.current_leader_epoch)
        if code is ErrorCode.none:
            found = partition.log.end_offset_for_epoch(entry.leader_epoch) or _UNKNOWN
    return exchange.make(
        "EpochEndOffset",
        error_code=code,
        partition=entry.partition,
        leader_epoch=found[0],
        end_offset=found[1],
    )
