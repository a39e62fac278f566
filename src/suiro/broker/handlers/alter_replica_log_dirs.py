"""AlterReplicaLogDirs: a node has one data directory, so a partition can only stay in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from suiro.broker.answers import Answer
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest


def handle(exchange: Exchange, request: AlterReplicaLogDirsRequest) -> Answer:
    allowed = exchange.may_on_cluster(Operation.ALTER)
    # The last directory counts for a partition that is named under two, as in Kafka.
    wishes: dict[str, dict[int, bool]] = {}
    for directory in request.dirs:
        is_ours = allowed and _is_ours(exchange.broker, directory.path)
        for topic in directory.topics:
            wishes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, is_ours))
    return exchange.response(
        results=tuple(
            exchange.make(
                "AlterReplicaLogDirTopicResult",
                topic_name=name,
                partitions=tuple(
                    exchange.make(
                        "AlterReplicaLogDirPartitionResult",
                        partition_index=index,
                        error_code=_code(exchange.broker, name, index, is_ours=is_ours)
                        if allowed
                        else ErrorCode.cluster_authorization_failed,
                    )
                    for index, is_ours in partitions.items()
                ),
            )
            for name, partitions in wishes.items()
        ),
    )


def _is_ours(broker: BrokerContext, path: str) -> bool:
    """Whether the path leads to the data directory. The system follows it: a client may send megabytes, and to follow
    them part by part takes minutes."""
    try:
        return os.path.samefile(path, broker.data)
    except (OSError, ValueError):  # it leads nowhere, is too long, or has a null byte
        return False


def _code(broker: BrokerContext, topic: str, index: int, *, is_ours: bool) -> ErrorCode:
    if not is_ours:
        return ErrorCode.log_dir_not_found
    if broker.topics.partition(topic, index) is None:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none
