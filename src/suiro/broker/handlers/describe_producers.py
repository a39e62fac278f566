"""DescribeProducers: the producers of a partition, and its open transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation, ResourceType
from suiro.broker.storage.topics import InvalidTopicError, check_topic_name
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest


def handle(exchange: Exchange, request: DescribeProducersRequest) -> Answer:
    # Each partition once: one with many producers, named thousands of times, would fill the node's memory.
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return exchange.response(
        topics=tuple(_topic(exchange, name, indexes) for name, indexes in wanted.items()),
    )


def _topic(exchange: Exchange, name: str, indexes: Iterable[int]) -> Any:
    code, message = ErrorCode.none, None
    try:
        check_topic_name(name)
    except InvalidTopicError as error:
        code, message = error.code, str(error)
    else:
        if not exchange.may(Operation.READ, ResourceType.TOPIC, name):
            code = ErrorCode.topic_authorization_failed
    partitions = []
    for index in indexes:
        partition = exchange.broker.topics.partition(name, index) if code is ErrorCode.none else None
        if partition is None:
            refused = ErrorCode.unknown_topic_or_partition if code is ErrorCode.none else code
            partitions.append(_partition(exchange, index, refused, message, ()))
        else:
            producers = tuple(_producer(exchange, entry) for entry in partition.log.producer_states())
            partitions.append(_partition(exchange, index, ErrorCode.none, None, producers))
    return exchange.make("TopicResponse", name=name, partitions=tuple(partitions))


def _partition(exchange: Exchange, index: int, code: ErrorCode, message: str | None, producers: tuple[Any, ...]) -> Any:
    return exchange.make(
        "PartitionResponse",
        partition_index=index,
        error_code=code,
        error_message=message,
        active_producers=producers,
    )


def _producer(exchange: Exchange, entry: Any) -> Any:
    return exchange.make(
        "ProducerState",
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
