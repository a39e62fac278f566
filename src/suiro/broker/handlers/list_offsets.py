"""ListOffsets: the offset at a time, or at one of the places in a log that have negative numbers.

A place that came with a later version is UNSUPPORTED_VERSION in an older request. Nothing at or after the reader's
end (high watermark, or last stable offset) is found by time.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.security import Operation, ResourceType
from suiro.broker.topics import Partition
from suiro.log import LogError
from suiro.protocol.messages import ErrorCode

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NOWHERE = (-1, -1)


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    # Only a consumer's view ends at its isolation level; others see all that is there.
    read_committed = request.replica_id == -1 and getattr(request, "isolation_level", 0) == 1
    asked = Counter(
        (topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    )
    answered: set[tuple[str, int]] = set()
    topics = []
    for topic in request.topics:
        allowed = exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        partitions = []
        for entry in topic.partitions:
            key = (topic.name, entry.partition_index)
            if key in answered and allowed:
                continue
            answered.add(key)
            code, (offset, timestamp) = ErrorCode.topic_authorization_failed, _NOWHERE
            if allowed and asked[key] > 1:
                code = ErrorCode.invalid_request
            elif allowed:
                code, (offset, timestamp) = _one(broker, exchange, *key, entry, read_committed=read_committed)
            partitions.append(
                exchange.make(
                    "ListOffsetsPartitionResponse",
                    partition_index=entry.partition_index,
                    error_code=code,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=broker.leader_epoch if offset >= 0 else -1,
                )
            )
        if partitions:
            topics.append(
                exchange.make("ListOffsetsTopicResponse", name=topic.name, partitions=tuple(partitions))
            )
    return exchange.response(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _one(
    broker: Broker, exchange: Exchange, topic: str, index: int, entry: Any, *, read_committed: bool
) -> tuple[ErrorCode, tuple[int, int]]:
    """(error, (offset, timestamp))."""
    if entry.timestamp < 0 and exchange.version < _SINCE_VERSION.get(entry.timestamp, exchange.version + 1):
        return ErrorCode.unsupported_version, _NOWHERE
    partition = broker.topics.partition(topic, index)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition, _NOWHERE
    code = broker.check_leader_epoch(getattr(entry, "current_leader_epoch", -1))
    if code is not ErrorCode.none:
        return code, _NOWHERE
    try:
        return code, _look_up(partition, entry.timestamp, read_committed=read_committed)
    except LogError as error:
        return error.code, _NOWHERE


def _look_up(partition: Partition, timestamp: int, *, read_committed: bool) -> tuple[int, int]:
    """(offset, timestamp), -1 where there is none."""
    log = partition.log
    end = log.last_stable_offset if read_committed else log.high_watermark
    match timestamp:
        case -1:
            return end, -1
        case -2 | -4:
            return log.log_start_offset, -1
        case -5 | -6:  # Nothing is in a remote tier, or on its way there.
            return _NOWHERE
        case -3:
            found = log.offset_of_max_timestamp()
        case _:
            found = log.offset_for_timestamp(timestamp)
    return _NOWHERE if found is None or found[0] >= end else found
