"""ListOffsets: the offset at a time, or at one of the places in a log that have negative numbers.

A place that came with a later version is UNSUPPORTED_VERSION in an older request. Nothing at or after the reader's
end (high watermark, or last stable offset) is found by time. A time that may lie in the remote tier is looked up
there first, in threads, and the answer given when that is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.security import Operation, ResourceType
from suiro.broker.topics import Partition
from suiro.errors import TransientError
from suiro.log import LogError
from suiro.protocol.messages import ErrorCode

logger = logging.getLogger(__name__)

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

_Found = Mapping[tuple[str, int], tuple[int, int] | ErrorCode | None]
"""(offset, timestamp) of what was looked up in the remote tier, or why that failed."""


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    by_time = _times_in_tier(broker, exchange, request)
    if not by_time:
        return _answer(broker, exchange, request, {})
    task = broker.loop.create_task(_answer_with_tier(broker, exchange, request, by_time))

    def abandoned() -> None:
        task.cancel()

    exchange.on_abandoned(abandoned)
    return None


def _times_in_tier(
    broker: Broker, exchange: Exchange, request: Any
) -> dict[tuple[str, int], tuple[Partition, int]]:
    """The times asked for in partitions that have records only in the remote tier."""
    found: dict[tuple[str, int], tuple[Partition, int]] = {}
    if broker.tier is None:
        return found
    for topic in request.topics:
        for entry in topic.partitions:
            partition = broker.topics.partition(topic.name, entry.partition_index)
            if partition is None or entry.timestamp < 0:
                continue
            log = partition.log
            in_tier = log.log_start_offset < log.local_log_start_offset
            if in_tier and exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
                found[topic.name, entry.partition_index] = (partition, entry.timestamp)
    return found


async def _answer_with_tier(
    broker: Broker,
    exchange: Exchange,
    request: Any,
    by_time: Mapping[tuple[str, int], tuple[Partition, int]],
) -> None:
    try:
        looking = {
            key: broker.loop.create_task(_in_tier(broker, partition, timestamp))
            for key, (partition, timestamp) in by_time.items()
        }
        try:
            await asyncio.gather(*looking.values())
        finally:
            for task in looking.values():
                task.cancel()
        found = {key: task.result() for key, task in looking.items()}
        exchange.answer(_answer(broker, exchange, request, found))
    except Exception:
        logger.exception("a look-up by time for %s failed; closing its connection", exchange.connection.peer)
        exchange.connection.close()


async def _in_tier(
    broker: Broker, partition: Partition, timestamp: int
) -> tuple[int, int] | ErrorCode | None:
    assert broker.tier is not None
    timeout_s = broker.settings.remote_list_offsets_request_timeout_ms / 1000
    try:
        return await asyncio.wait_for(broker.tier.offset_for_timestamp(partition, timestamp), timeout_s)
    except TimeoutError:
        return ErrorCode.request_timed_out
    except LogError as error:
        return error.code
    except TransientError as error:
        logger.warning("looking up a time in %s-%d: %s", partition.topic, partition.index, error)
        return ErrorCode.unknown_server_error


def _answer(broker: Broker, exchange: Exchange, request: Any, in_tier: _Found) -> Any:
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
                code, (offset, timestamp) = _one(
                    broker, exchange, *key, entry, read_committed=read_committed, in_tier=in_tier
                )
            partitions.append(
                exchange.make(
                    "ListOffsetsPartitionResponse",
                    partition_index=entry.partition_index,
                    error_code=code,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=_epoch(broker, *key, entry.timestamp, offset),
                )
            )
        if partitions:
            topics.append(
                exchange.make("ListOffsetsTopicResponse", name=topic.name, partitions=tuple(partitions))
            )
    return exchange.response(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _epoch(broker: Broker, topic: str, index: int, timestamp: int, offset: int) -> int:
    """Of the record that was found; the end is where the next one comes, in the current epoch."""
    partition = broker.topics.partition(topic, index) if offset >= 0 else None
    if partition is None:
        return -1
    return partition.log.leader_epoch if timestamp == LATEST else partition.log.epoch_of(offset)


def _one(
    broker: Broker,
    exchange: Exchange,
    topic: str,
    index: int,
    entry: Any,
    *,
    read_committed: bool,
    in_tier: _Found,
) -> tuple[ErrorCode, tuple[int, int]]:
    """(error, (offset, timestamp))."""
    if entry.timestamp < 0 and exchange.version < _SINCE_VERSION.get(entry.timestamp, exchange.version + 1):
        return ErrorCode.unsupported_version, _NOWHERE
    partition = broker.topics.partition(topic, index)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition, _NOWHERE
    code = partition.check_leader_epoch(getattr(entry, "current_leader_epoch", -1))
    if code is not ErrorCode.none:
        return code, _NOWHERE
    if (topic, index) in in_tier:
        found = in_tier[topic, index]
        if isinstance(found, ErrorCode):
            return found, _NOWHERE
        end = partition.log.last_stable_offset if read_committed else partition.log.high_watermark
        return code, _NOWHERE if found is None or found[0] >= end else found
    try:
        return code, _look_up(broker, partition, entry.timestamp, read_committed=read_committed)
    except LogError as error:
        return error.code, _NOWHERE


def _look_up(
    broker: Broker, partition: Partition, timestamp: int, *, read_committed: bool
) -> tuple[int, int]:
    """(offset, timestamp), -1 where there is none."""
    log, tier = partition.log, broker.tier
    end = log.last_stable_offset if read_committed else log.high_watermark
    match timestamp:
        case -1:
            return end, -1
        case -2:
            return log.log_start_offset, -1
        case -4:
            return log.local_log_start_offset, -1
        case -5 | -6:
            if tier is None or not log.config.remote_storage_enable:
                return _NOWHERE
            latest = timestamp == LATEST_TIERED
            return tier.highest_offset(partition) if latest else tier.earliest_pending_upload(partition), -1
        case -3:
            found = log.offset_of_max_timestamp()
        case _:
            found = log.offset_for_timestamp(timestamp)
    return _NOWHERE if found is None or found[0] >= end else found
