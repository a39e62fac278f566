"""Metadata: brokers (this one), topics and their partitions. Creates topics on first use where that is allowed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.topics import InvalidTopicError, Topic, check_topic_name
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    wanted = request.topics
    if wanted is None or (exchange.version == 0 and not wanted):
        topics = tuple(_found(broker, exchange, topic) for topic in broker.topics)
    else:
        may_create = getattr(request, "allow_auto_topic_creation", True)
        topics = tuple(_one(broker, exchange, entry, may_create=may_create) for entry in wanted)
    host, port = broker.advertised(exchange.connection)
    return exchange.response(
        throttle_time=NO_THROTTLE,
        brokers=(
            exchange.make("MetadataResponseBroker", node_id=broker.node_id, host=host, port=port, rack=None),
        ),
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        error_code=ErrorCode.none,
    )


def _one(broker: Broker, exchange: Exchange, entry: Any, *, may_create: bool) -> Any:
    topic_id = getattr(entry, "topic_id", None)
    if entry.name is None:
        topic = broker.topics.topic_by_id(topic_id)
        if topic is None:
            return _missing(exchange, ErrorCode.unknown_topic_id, topic_id=topic_id)
        return _found(broker, exchange, topic)
    topic = broker.topics.topic(entry.name)
    if topic is None:
        try:
            check_topic_name(entry.name)
        except InvalidTopicError:
            return _missing(exchange, ErrorCode.invalid_topic_exception, name=entry.name)
        if not (may_create and broker.settings.auto_create_topics_enable):
            return _missing(exchange, ErrorCode.unknown_topic_or_partition, name=entry.name)
        topic = broker.create_topic(entry.name)
    return _found(broker, exchange, topic)


def _found(broker: Broker, exchange: Exchange, topic: Topic) -> Any:
    me = (broker.node_id,)
    return exchange.make(
        "MetadataResponseTopic",
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(
            exchange.make(
                "MetadataResponsePartition",
                error_code=ErrorCode.none,
                partition_index=partition.index,
                leader_id=broker.node_id,
                leader_epoch=broker.leader_epoch,
                replica_nodes=me,
                isr_nodes=me,
                offline_replicas=(),
            )
            for partition in topic.partitions
        ),
    )


def _missing(
    exchange: Exchange, code: ErrorCode, *, name: str | None = None, topic_id: UUID | None = None
) -> Any:
    if name is None and exchange.version < 12:
        name = ""
    return exchange.make(
        "MetadataResponseTopic",
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=False,
        partitions=(),
    )
