"""DescribeTopicPartitions (KIP-966): topics in the order of their names, a page of partitions at a time.

A page that ends early names in its cursor the partition that the next request begins with. A topic that does not
exist takes no place in the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer, Response
from suiro.broker.exchange import OPERATIONS_NOT_ASKED, Exchange
from suiro.broker.handlers.metadata import absent_code
from suiro.broker.security.acl import Operation, ResourceType
from suiro.broker.storage.topics import Topic
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest


def handle(exchange: Exchange, request: DescribeTopicPartitionsRequest) -> Answer:
    cursor = request.cursor
    start = "" if cursor is None else cursor.topic_name
    wanted: set[str]
    allowed: set[str]
    if request.topics:
        wanted = {topic.name for topic in request.topics if topic.name >= start}
        if "" in wanted:
            return _refused(exchange, request, ErrorCode.unknown_server_error)  # Kafka trips over this, too.
        if cursor is not None and start not in wanted:
            return _refused(exchange, request, ErrorCode.invalid_request)
        allowed = {name for name in wanted if exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, name)}
    else:
        wanted = allowed = {
            topic.name
            for topic in exchange.broker.topics
            if topic.name >= start and exchange.permits(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        }
    if cursor is not None and start in allowed and cursor.partition_index < 0:
        return _refused(exchange, request, ErrorCode.invalid_request)
    limit = min(exchange.broker.settings.max_request_partition_size_limit, max(1, request.response_partition_limit))
    topics, next_cursor = _page(
        exchange, sorted(allowed), start, 0 if cursor is None else cursor.partition_index, limit
    )
    denied = [
        _without_partitions(exchange, name, ErrorCode.topic_authorization_failed) for name in sorted(wanted - allowed)
    ]
    return exchange.response(topics=(*topics, *denied), next_cursor=next_cursor)


def _page(exchange: Exchange, names: Iterable[str], start: str, start_index: int, left: int) -> tuple[list[Any], Any]:
    """(topics with at most `left` partitions, cursor of the next page or None)."""
    topics: list[Any] = []
    for name in names:
        topic = exchange.broker.topics.topic(name)
        if topic is None:
            operations = exchange.operations(ResourceType.TOPIC, name, asked=True)
            topics.append(_without_partitions(exchange, name, absent_code(name), operations=operations))
            continue
        first = start_index if name == start else 0
        if left == 0:
            return topics, exchange.make("Cursor", topic_name=name, partition_index=first)
        last = min(first + left, len(topic.partitions))
        topics.append(_described(exchange, topic, first, last))
        if last < len(topic.partitions):
            return topics, exchange.make("Cursor", topic_name=name, partition_index=last)
        left -= max(0, last - first)
    return topics, None


def _described(exchange: Exchange, topic: Topic, first: int, last: int) -> Any:
    me = (exchange.broker.node_id,)
    return exchange.make(
        "DescribeTopicPartitionsResponseTopic",
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(
            exchange.make(
                "DescribeTopicPartitionsResponsePartition",
                error_code=ErrorCode.none,
                partition_index=index,
                leader_id=exchange.broker.node_id,
                leader_epoch=topic.partitions[index].log.leader_epoch,
                replica_nodes=me,
                isr_nodes=me,
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=(),
            )
            for index in range(first, last)
        ),
        topic_authorized_operations=exchange.operations(ResourceType.TOPIC, topic.name, asked=True),
    )


def _without_partitions(
    exchange: Exchange, name: str, code: ErrorCode, *, operations: int = OPERATIONS_NOT_ASKED
) -> Any:
    return exchange.make(
        "DescribeTopicPartitionsResponseTopic",
        error_code=code,
        name=name,
        topic_id=None,
        is_internal=False,
        partitions=(),
        topic_authorized_operations=operations,
    )


def _refused(exchange: Exchange, request: DescribeTopicPartitionsRequest, code: ErrorCode) -> Response:
    """The same error for everything: the request itself is wrong."""
    topics = tuple(_without_partitions(exchange, topic.name, code) for topic in request.topics)
    return exchange.response(topics=topics, next_cursor=None)
