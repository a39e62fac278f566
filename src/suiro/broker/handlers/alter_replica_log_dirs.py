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
    wishes: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            wishes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
    return exchange.response(
        results=tuple(
            exchange.make(
                "AlterReplicaLogDirTopicResult",
                topic_name=name,
                partitions=tuple(
                    exchange.make(
                        "AlterReplicaLogDirPartitionResult",
                        partition_index=index,
                        error_code=_code(exchange.broker, name, index, path)
                        if allowed
                        else ErrorCode.cluster_authorization_failed,
                    )
                    for index, path in partitions.items()
                ),
            )
            for name, partitions in wishes.items()
        ),
    )


def _code(broker: BrokerContext, topic: str, index: int, path: str) -> ErrorCode:
    if os.path.realpath(path) != os.path.realpath(broker.data):
        return ErrorCode.log_dir_not_found
    if broker.topics.partition(topic, index) is None:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none
