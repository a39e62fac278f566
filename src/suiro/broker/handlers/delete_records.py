"""DeleteRecords: moves a partition's start."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.log import LogError
from suiro.protocol.messages import ErrorCode

HIGH_WATERMARK = -1


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    topics = tuple(
        exchange.make(
            "DeleteRecordsTopicResult",
            name=topic.name,
            partitions=tuple(_one(broker, exchange, topic.name, entry) for entry in topic.partitions),
        )
        for topic in request.topics
    )
    return exchange.response(throttle_time=NO_THROTTLE, topics=topics)


def _one(broker: Broker, exchange: Exchange, topic: str, entry: Any) -> Any:
    partition = broker.topics.partition(topic, entry.partition_index)
    code, start = ErrorCode.none, -1
    if partition is None:
        code = ErrorCode.unknown_topic_or_partition
    elif broker.is_internal(topic):
        code = ErrorCode.policy_violation
    else:
        offset = partition.log.high_watermark if entry.offset == HIGH_WATERMARK else entry.offset
        try:
            partition.log.delete_records_before(offset)
            start = partition.log.log_start_offset
        except LogError as error:
            code = error.code
    return exchange.make(
        "DeleteRecordsPartitionResult",
        partition_index=entry.partition_index,
        low_watermark=start,
        error_code=code,
    )
