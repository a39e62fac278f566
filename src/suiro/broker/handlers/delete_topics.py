"""DeleteTopics, by name or (version 6) by id."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    if exchange.version >= 6:
        wanted = [(state.name, state.topic_id) for state in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    responses = []
    for name, topic_id in wanted:
        topic = broker.topics.topic(name) if name is not None else broker.topics.topic_by_id(topic_id)
        if not broker.settings.delete_topic_enable:
            code = ErrorCode.topic_deletion_disabled
        elif topic is None:
            code = ErrorCode.unknown_topic_or_partition if name is not None else ErrorCode.unknown_topic_id
        elif topic.is_internal:
            code = ErrorCode.invalid_request
        else:
            name, topic_id, code = topic.name, topic.topic_id, ErrorCode.none
            broker.delete_topic(topic)
        responses.append(
            exchange.make(
                "DeletableTopicResult", name=name, topic_id=topic_id, error_code=code, error_message=None
            )
        )
    return exchange.response(throttle_time=NO_THROTTLE, responses=tuple(responses))
