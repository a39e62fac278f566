"""ListOffsets: by timestamp, or one of the special places (-1 end, -2 start, -3 largest timestamp, -4 local start)."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.topics import Partition
from suiro.log import LogError
from suiro.protocol.messages import ErrorCode

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    read_committed = getattr(request, "isolation_level", 0) == 1
    topics = tuple(
        exchange.make(
            "ListOffsetsTopicResponse",
            name=topic.name,
            partitions=tuple(
                _one(broker, exchange, topic.name, entry, read_committed=read_committed)
                for entry in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return exchange.response(throttle_time=NO_THROTTLE, topics=topics)


def _one(broker: Broker, exchange: Exchange, topic: str, entry: Any, *, read_committed: bool) -> Any:
    partition = broker.topics.partition(topic, entry.partition_index)
    code = (
        ErrorCode.unknown_topic_or_partition
        if partition is None
        else broker.check_leader_epoch(getattr(entry, "current_leader_epoch", -1))
    )
    offset, timestamp = -1, -1
    if partition is not None and code is ErrorCode.none:
        try:
            offset, timestamp = _look_up(partition, entry.timestamp, read_committed=read_committed)
        except LogError as error:
            code = error.code
        except ValueError:
            code = ErrorCode.unsupported_version
    return exchange.make(
        "ListOffsetsPartitionResponse",
        partition_index=entry.partition_index,
        error_code=code,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=broker.leader_epoch if offset >= 0 else -1,
    )


def _look_up(partition: Partition, timestamp: int, *, read_committed: bool) -> tuple[int, int]:
    """(offset, timestamp), -1 where there is none. Nothing at or after the reader's end is found."""
    log = partition.log
    end = log.last_stable_offset if read_committed else log.high_watermark
    match timestamp:
        case -1:
            return end, -1
        case -2 | -4:
            return log.log_start_offset, -1
        case -3:
            found = log.offset_of_max_timestamp()
        case -5:
            return -1, -1
        case _ if timestamp < 0:
            raise ValueError(f"no place in a log is called {timestamp}")
        case _:
            found = log.offset_for_timestamp(timestamp)
    if found is None or found[0] >= end:
        return -1, -1
    return found
