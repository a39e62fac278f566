"""DeleteRecords: moves the start offset of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation, ResourceType
from suiro.broker.storage.topics import INTERNAL_TOPICS
from suiro.log import LogError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.delete_records.v2.request import DeleteRecordsRequest


HIGH_WATERMARK = -1


def handle(exchange: Exchange, request: DeleteRecordsRequest) -> Answer:
    topics = []
    for topic in request.topics:
        allowed = exchange.may(Operation.DELETE, ResourceType.TOPIC, topic.name)
        topics.append(
            exchange.make(
                "DeleteRecordsTopicResult",
                name=topic.name,
                partitions=tuple(_one(exchange, topic.name, entry, allowed=allowed) for entry in topic.partitions),
            )
        )
    return exchange.response(topics=tuple(topics))


def _one(exchange: Exchange, topic: str, entry: Any, *, allowed: bool) -> Any:
    code, start = ErrorCode.topic_authorization_failed, -1
    if allowed:
        code, start = _delete(exchange.broker, topic, entry.partition_index, entry.offset)
    return exchange.make(
        "DeleteRecordsPartitionResult",
        partition_index=entry.partition_index,
        low_watermark=start,
        error_code=code,
    )


def _delete(broker: BrokerContext, topic: str, index: int, offset: int) -> tuple[ErrorCode, int]:
    """(error, the partition's new start)."""
    partition = broker.topics.partition(topic, index)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition, -1
    if topic in INTERNAL_TOPICS:
        return ErrorCode.invalid_topic_exception, -1
    log = partition.log
    if log.config.compacted and not log.config.deletes_old_segments:
        return ErrorCode.policy_violation, -1
    offset = log.high_watermark if offset == HIGH_WATERMARK else offset
    if offset < 0:
        return ErrorCode.offset_out_of_range, -1
    start = log.log_start_offset
    try:
        log.retention.delete_records_before(offset)
    except LogError as error:
        return error.code, -1
    if log.log_start_offset != start:
        partition.grown()  # Fetch sessions tell their clients the new start.
    return ErrorCode.none, log.log_start_offset
