"""OffsetDelete: deletes committed offsets of topics to which the group is not subscribed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer, Response
from suiro.broker.exchange import Exchange
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation, ResourceType
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest


def handle(exchange: Exchange, request: OffsetDeleteRequest) -> Answer:
    if not exchange.may(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return _refused(exchange, ErrorCode.group_authorization_failed)
    codes: dict[TopicPartition, ErrorCode] = {}
    places: list[TopicPartition] = []
    for topic in request.topics:
        may = exchange.may(Operation.READ, ResourceType.TOPIC, topic.name)
        for entry in topic.partitions:
            place = (topic.name, entry.partition_index)
            if not may:
                codes[place] = ErrorCode.topic_authorization_failed
            elif exchange.broker.topics.partition(*place) is None:
                codes[place] = ErrorCode.unknown_topic_or_partition
            else:
                places.append(place)
    if not request.group_id:
        return _refused(exchange, ErrorCode.invalid_group_id)
    try:
        done = exchange.broker.groups.offsets.delete(request.group_id, places)
    except RefusedError as refusal:
        return _refused(exchange, refusal.code)
    by_topic: dict[str, list[Any]] = {}
    for (name, index), code in (codes | done).items():
        by_topic.setdefault(name, []).append(
            exchange.make("OffsetDeleteResponsePartition", partition_index=index, error_code=code)
        )
    topics = tuple(
        exchange.make("OffsetDeleteResponseTopic", name=name, partitions=tuple(partitions))
        for name, partitions in by_topic.items()
    )
    return exchange.response(error_code=ErrorCode.none, topics=topics)


def _refused(exchange: Exchange, code: ErrorCode) -> Response:
    return exchange.response(error_code=code, topics=())
