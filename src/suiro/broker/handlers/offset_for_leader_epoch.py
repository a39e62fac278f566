"""OffsetForLeaderEpoch. A single node never loses what it acknowledged, so its only epoch ends at the log's end."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    topics = tuple(
        exchange.make(
            "OffsetForLeaderTopicResult",
            topic=topic.topic,
            partitions=tuple(_one(broker, exchange, topic.topic, entry) for entry in topic.partitions),
        )
        for topic in request.topics
    )
    return exchange.response(throttle_time=NO_THROTTLE, topics=topics)


def _one(broker: Broker, exchange: Exchange, topic: str, entry: Any) -> Any:
    partition = broker.topics.partition(topic, entry.partition)
    code, epoch, end = ErrorCode.none, -1, -1
    if partition is None:
        code = ErrorCode.unknown_topic_or_partition
    else:
        code = broker.check_leader_epoch(entry.current_leader_epoch)
        if code is ErrorCode.none and 0 <= entry.leader_epoch <= broker.leader_epoch:
            epoch, end = broker.leader_epoch, partition.log.log_end_offset
    return exchange.make(
        "EpochEndOffset", error_code=code, partition=entry.partition, leader_epoch=epoch, end_offset=end
    )
