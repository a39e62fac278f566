"""DescribeLogDirs: the one data directory, how large each partition in it is, and how much room there is."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation
from suiro.broker.storage.topics import Partition
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest


def handle(exchange: Exchange, request: DescribeLogDirsRequest) -> Answer:
    broker = exchange.broker
    if not exchange.may_on_cluster(Operation.DESCRIBE):
        code = ErrorCode.cluster_authorization_failed
        return exchange.response(error_code=code, results=())
    disk = shutil.disk_usage(broker.data)
    topics = tuple(
        exchange.make(
            "DescribeLogDirsTopic",
            name=name,
            partitions=tuple(
                exchange.make(
                    "DescribeLogDirsPartition",
                    partition_index=partition.index,
                    partition_size=partition.log.size,
                    offset_lag=0,
                    is_future_key=False,
                )
                for partition in partitions
            ),
        )
        for name, partitions in _wanted(broker, request.topics)
        if partitions
    )
    directory = exchange.make(
        "DescribeLogDirsResult",
        error_code=ErrorCode.none,
        log_dir=str(broker.data.resolve()),
        topics=topics,
        total_bytes=disk.total,
        usable_bytes=disk.free,
        is_cordoned=False,
    )
    return exchange.response(error_code=ErrorCode.none, results=(directory,))


def _wanted(broker: BrokerContext, wanted: Any) -> list[tuple[str, list[Partition]]]:
    """All topics' partitions, or those asked for that there are."""
    if wanted is None:
        return [(topic.name, topic.partitions) for topic in broker.topics]
    # Each once, as in Kafka: the size of a partition is the sum over its segments.
    asked: dict[str, dict[int, None]] = {}
    for entry in wanted:
        asked.setdefault(entry.topic, {}).update(dict.fromkeys(entry.partitions))
    found = []
    for name, indexes in asked.items():
        partitions = (broker.topics.partition(name, index) for index in indexes)
        found.append((name, [partition for partition in partitions if partition is not None]))
    return found
