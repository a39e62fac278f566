"""CreatePartitions: a topic can get more, never fewer."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.protocol.messages import ErrorCode

MAX_PARTITIONS = 10_000


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    results = []
    for entry in request.topics:
        code, message = _grow(broker, entry.name, entry.count, validate_only=request.validate_only)
        results.append(
            exchange.make(
                "CreatePartitionsTopicResult", name=entry.name, error_code=code, error_message=message
            )
        )
    return exchange.response(throttle_time=NO_THROTTLE, results=tuple(results))


def _grow(broker: Broker, name: str, count: int, *, validate_only: bool) -> tuple[ErrorCode, str | None]:
    topic = broker.topics.topic(name)
    if topic is None:
        return ErrorCode.unknown_topic_or_partition, f"there is no topic {name}"
    if topic.is_internal:
        return ErrorCode.invalid_request, f"{name} keeps the partitions it was made with"
    have = len(topic.partitions)
    if not have < count <= MAX_PARTITIONS:
        return (
            ErrorCode.invalid_partitions,
            f"{name} has {have} partitions; ask for more, at most {MAX_PARTITIONS}",
        )
    if not validate_only:
        broker.topics.grow(topic, count)
    return ErrorCode.none, None
