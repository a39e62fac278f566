"""Offsets of logs: ListOffsets, OffsetForLeaderEpoch and DeleteRecords.

ListOffsets. A place that came with a later version is UNSUPPORTED_VERSION in an older request. Nothing at or after the
reader's end (high watermark, or last stable offset) is found by time.

A look-up by time decompresses records, whose header may promise what is not in them, and one in the remote tier waits
for a store. Both run in threads, and the answer is given when all are done; a batch that cannot be read is an error of
its partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Answer, Exchange, Response
from suiro.broker.security.acl import Operation, ResourceType
from suiro.broker.storage.topics import INTERNAL_TOPICS, Partition
from suiro.errors import TransientError
from suiro.foundation.types import TopicPartition
from suiro.log import LogError, TimeLookup
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.delete_records.v2.request import DeleteRecordsRequest
    from kio.schema.list_offsets.v11.request import ListOffsetsRequest
    from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest


logger = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
HIGH_WATERMARK = -1
"""Of DeleteRecords."""

_SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NOWHERE = (-1, -1)

_TOGETHER = 64
"""Partitions for one call of a thread."""

_Result: TypeAlias = tuple[int, int] | ErrorCode | None
"""(offset, timestamp) of what was found by its time, None, or why the look-up failed."""


def list_offsets(exchange: Exchange, request: ListOffsetsRequest) -> Answer:
    """ListOffsets: the first offset at or after a time, or one of the special offsets, such as earliest and latest."""
    asked = _asked_by_time(exchange, request)
    if not asked:
        return _answer(exchange, request, {})
    return exchange.in_task(_answer_by_time(exchange, request, asked))


def _asked_by_time(exchange: Exchange, request: ListOffsetsRequest) -> dict[Partition, int]:
    """The partitions whose records must be looked at, and for which time."""
    found: dict[Partition, int] = {}
    for topic in request.topics:
        for entry in topic.partitions:
            if not _is_by_time(entry.timestamp):
                continue
            partition = exchange.broker.topics.partition(topic.name, entry.partition_index)
            if (
                partition is not None
                and _is_known(exchange, entry.timestamp)
                and exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
            ):
                found[partition] = entry.timestamp
    return found


def _is_by_time(timestamp: int) -> bool:
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _is_known(exchange: Exchange, timestamp: int) -> bool:
    return timestamp >= 0 or exchange.version >= _SINCE_VERSION.get(timestamp, exchange.version + 1)


async def _answer_by_time(exchange: Exchange, request: ListOffsetsRequest, asked: Mapping[Partition, int]) -> Response:
    broker = exchange.broker
    in_tier = {partition for partition, timestamp in asked.items() if _is_in_tier(broker, partition, timestamp)}
    here = [one for one in asked.items() if one[0] not in in_tier]
    looking = {each: broker.loop.create_task(_in_tier(broker, each, asked[each])) for each in in_tier}
    found: dict[Partition, _Result] = {}
    try:
        for first in range(0, len(here), _TOGETHER):
            found |= await _look_up_here(broker, here[first : first + _TOGETHER])
        await asyncio.gather(*looking.values())
    finally:
        for task in looking.values():
            task.cancel()
    found |= {partition: task.result() for partition, task in looking.items()}
    return _answer(exchange, request, found)


def _is_in_tier(broker: BrokerContext, partition: Partition, timestamp: int) -> bool:
    log = partition.log
    return broker.tier is not None and timestamp >= 0 and log.log_start_offset < log.local_log_start_offset


async def _look_up_here(broker: BrokerContext, asked: Sequence[tuple[Partition, int]]) -> dict[Partition, _Result]:
    """Look up all, a step at a time: a step is a segment of each partition that has not found its record yet."""
    found: dict[Partition, _Result] = {}
    left = {partition: _lookups(partition, timestamp) for partition, timestamp in asked}
    while left:
        jobs: dict[Partition, TimeLookup] = {}
        for partition, lookups in left.items():
            try:
                job = None if partition.deleted else next(lookups, None)
            except (LogError, OSError) as error:
                found[partition] = _refusal(partition, error)
                continue
            if job is None:
                found[partition] = None
            else:
                jobs[partition] = job
        results = await broker.workers.run(partial(_run, jobs)) if jobs else {}
        for partition, result in results.items():
            if isinstance(result, Exception):
                found[partition] = _refusal(partition, result)
            elif result is not None:
                found[partition] = result
        left = {partition: lookups for partition, lookups in left.items() if partition not in found}
    return found


def _lookups(partition: Partition, timestamp: int) -> Iterator[TimeLookup]:
    log = partition.log
    return log.lookups_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.lookups_by_time(timestamp)


def _run(
    jobs: Mapping[Partition, TimeLookup],
) -> dict[Partition, tuple[int, int] | LogError | OSError | None]:
    results: dict[Partition, tuple[int, int] | LogError | OSError | None] = {}
    for partition, job in jobs.items():
        try:
            results[partition] = job.run()
        except (LogError, OSError) as error:
            results[partition] = error
    return results


def _refusal(partition: Partition, error: Exception) -> ErrorCode:
    logger.warning("cannot look up a time in %s-%d: %s", partition.topic, partition.index, error)
    return error.code if isinstance(error, LogError) else ErrorCode.kafka_storage_error


async def _in_tier(broker: BrokerContext, partition: Partition, timestamp: int) -> _Result:
    assert broker.tier is not None
    timeout_s = broker.settings.remote_list_offsets_request_timeout_ms / 1000
    try:
        return await asyncio.wait_for(broker.tier.offset_for_timestamp(partition, timestamp), timeout_s)
    except TimeoutError:
        return ErrorCode.request_timed_out
    except (LogError, OSError) as error:
        return _refusal(partition, error)
    except TransientError as error:
        logger.warning("looking up a time in %s-%d: %s", partition.topic, partition.index, error)
        return ErrorCode.unknown_server_error


def _answer(exchange: Exchange, request: ListOffsetsRequest, by_time: Mapping[Partition, _Result]) -> Response:
    # Only a consumer's view ends at its isolation level; replicas see the whole log.
    read_committed = request.replica_id == -1 and getattr(request, "isolation_level", 0) == 1
    asked = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    answered: set[TopicPartition] = set()
    topics: list[Any] = []
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
                code, (offset, timestamp) = _one(exchange, *key, entry, read_committed=read_committed, by_time=by_time)
            partitions.append(
                {
                    "partition_index": entry.partition_index,
                    "error_code": code,
                    "timestamp": timestamp,
                    "offset": offset,
                    "leader_epoch": _epoch(exchange.broker, *key, entry.timestamp, offset),
                }
            )
        if partitions:
            topics.append({"name": topic.name, "partitions": partitions})
    return exchange.response(topics=topics)


def _epoch(broker: BrokerContext, topic: str, index: int, timestamp: int, offset: int) -> int:
    """The leader epoch of the record; at the end that of the next one, the current epoch."""
    partition = broker.topics.partition(topic, index) if offset >= 0 else None
    if partition is None:
        return -1
    return partition.log.leader_epoch if timestamp == LATEST else partition.log.epoch_of(offset)


def _one(
    exchange: Exchange,
    topic: str,
    index: int,
    entry: Any,
    *,
    read_committed: bool,
    by_time: Mapping[Partition, _Result],
) -> tuple[ErrorCode, tuple[int, int]]:
    """(error, (offset, timestamp))."""
    if not _is_known(exchange, entry.timestamp):
        return ErrorCode.unsupported_version, _NOWHERE
    partition = exchange.broker.topics.partition(topic, index)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition, _NOWHERE
    code = partition.check_leader_epoch(getattr(entry, "current_leader_epoch", -1))
    if code is not ErrorCode.none:
        return code, _NOWHERE
    end = partition.log.last_stable_offset if read_committed else partition.log.high_watermark
    if _is_by_time(entry.timestamp):
        # While it was looked up, the topic may have been deleted, and made again.
        found = by_time.get(partition, ErrorCode.unknown_topic_or_partition)
        if isinstance(found, ErrorCode):
            return found, _NOWHERE
        return code, _NOWHERE if found is None or found[0] >= end else found
    return code, _place(exchange.broker, partition, entry.timestamp, end)


def _place(broker: BrokerContext, partition: Partition, timestamp: int, end: int) -> tuple[int, int]:
    """(offset, -1) of one of the places with negative numbers."""
    log, tier = partition.log, broker.tier
    match timestamp:
        case -1:
            return end, -1
        case -2:
            return log.log_start_offset, -1
        case -4:
            return log.local_log_start_offset, -1
        case -5 | -6 if tier is not None and log.config.remote_storage_enable:
            latest = timestamp == LATEST_TIERED
            return tier.highest_offset(partition) if latest else tier.earliest_pending_upload(partition), -1
    return _NOWHERE


def offset_for_leader_epoch(exchange: Exchange, request: OffsetForLeaderEpochRequest) -> Answer:
    """OffsetForLeaderEpoch: the end offset of a leader epoch, so that a consumer can detect a truncated log."""
    # A replica asks with a cluster operation for every topic; a consumer needs each topic's DESCRIBE.
    is_replica = exchange.may_on_cluster(Operation.CLUSTER_ACTION)
    topics = []
    for topic in request.topics:
        allowed = is_replica or exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        partitions = [_end_of_epoch(exchange.broker, topic.topic, entry, allowed=allowed) for entry in topic.partitions]
        topics.append({"topic": topic.topic, "partitions": partitions})
    return exchange.response(topics=topics)


def _end_of_epoch(broker: BrokerContext, topic: str, entry: Any, *, allowed: bool) -> dict[str, Any]:
    code, found = ErrorCode.topic_authorization_failed, _NOWHERE
    partition = broker.topics.partition(topic, entry.partition) if allowed else None
    if partition is not None:
        code = partition.check_leader_epoch(entry.current_leader_epoch)
        if code is ErrorCode.none:
            found = partition.log.end_offset_for_epoch(entry.leader_epoch) or _NOWHERE
    elif allowed:
        code = ErrorCode.unknown_topic_or_partition
    return {"error_code": code, "partition": entry.partition, "leader_epoch": found[0], "end_offset": found[1]}


def delete_records(exchange: Exchange, request: DeleteRecordsRequest) -> Answer:
    """DeleteRecords: moves the start offset of a partition."""
    topics: list[dict[str, Any]] = []
    for topic in request.topics:
        allowed = exchange.may(Operation.DELETE, ResourceType.TOPIC, topic.name)
        partitions = []
        for entry in topic.partitions:
            code, start = ErrorCode.topic_authorization_failed, -1
            if allowed:
                code, start = _delete(exchange.broker, topic.name, entry.partition_index, entry.offset)
            partitions.append({"partition_index": entry.partition_index, "low_watermark": start, "error_code": code})
        topics.append({"name": topic.name, "partitions": partitions})
    return exchange.response(topics=topics)


def _delete(broker: BrokerContext, topic: str, index: int, offset: int) -> tuple[ErrorCode, int]:
    """(error, the partition's new start)."""
    partition = broker.topics.partition(topic, index)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition, -1
    if topic in INTERNAL_TOPICS:
        return ErrorCode.invalid_topic_exception, -1
    log = partition.log
    if log.config.compacted and not log.config.deletes_old_segments:
        return ErrorCode.policy_violation, -1
    offset = log.high_watermark if offset == HIGH_WATERMARK else offset
    if offset < 0:
        return ErrorCode.offset_out_of_range, -1
    start = log.log_start_offset
    try:
        log.retention.delete_records_before(offset)
    except LogError as error:
        return error.code, -1
    if log.log_start_offset != start:
        partition.grown()  # Fetch sessions tell their clients the new start.
    return ErrorCode.none, log.log_start_offset
