"""Where replicas are: the one data directory of the one node, which leads every partition. Requests that would move a
replica or elect a leader have nothing to do."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from suiro.broker.context import BrokerContext
from suiro.broker.exchange import DENIED, Answer, Exchange
from suiro.broker.refusals import RefusedError, shown
from suiro.broker.security.acl import Operation, ResourceType
from suiro.broker.storage.topics import Partition
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
    from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
    from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
    from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest

_PREFERRED, _UNCLEAN = 0, 1


def describe_log_dirs(exchange: Exchange, request: DescribeLogDirsRequest) -> Answer:
    """DescribeLogDirs: the one data directory, how large each partition in it is, and how much room there is."""
    broker = exchange.broker
    if not exchange.may_on_cluster(Operation.DESCRIBE):
        return exchange.response(error_code=ErrorCode.cluster_authorization_failed)  # of version 3 and up
    disk = shutil.disk_usage(broker.data)
    topics = [
        {
            "name": name,
            "partitions": [
                {"partition_index": partition.index, "partition_size": partition.log.size} for partition in partitions
            ],
        }
        for name, partitions in _partitions(broker, request.topics)
        if partitions
    ]
    directory = {
        "log_dir": str(broker.data.resolve()),
        "topics": topics,
        "total_bytes": disk.total,
        "usable_bytes": disk.free,
    }
    return exchange.response(results=[directory])


def _partitions(broker: BrokerContext, wanted: Any) -> list[tuple[str, list[Partition]]]:
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


def alter_replica_log_dirs(exchange: Exchange, request: AlterReplicaLogDirsRequest) -> Answer:
    """AlterReplicaLogDirs: a node has one data directory, so a partition can only stay in it."""
    allowed = exchange.may_on_cluster(Operation.ALTER)
    # The last directory counts for a partition that is named under two, as in Kafka.
    wishes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        code = ErrorCode.cluster_authorization_failed
        if allowed:
            is_ours = _is_ours(exchange.broker, directory.path)
            code = ErrorCode.none if is_ours else ErrorCode.log_dir_not_found
        for topic in directory.topics:
            wishes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, code))

    def code_of(name: str, index: int, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.none and exchange.broker.topics.partition(name, index) is None:
            return ErrorCode.unknown_topic_or_partition
        return code

    return exchange.response(
        results=[
            {
                "topic_name": name,
                "partitions": [
                    {"partition_index": index, "error_code": code_of(name, index, code)}
                    for index, code in partitions.items()
                ],
            }
            for name, partitions in wishes.items()
        ]
    )


def _is_ours(broker: BrokerContext, path: str) -> bool:
    """Whether the path leads to the data directory. The system follows it: a client may send megabytes, and to follow
    them part by part takes minutes."""
    try:
        return os.path.samefile(path, broker.data)
    except (OSError, ValueError):  # it leads nowhere, is too long, or has a null byte
        return False


def elect_leaders(exchange: Exchange, request: ElectLeadersRequest) -> Answer:
    """ElectLeaders: the one node leads every partition, so no election is ever needed."""
    kind = getattr(request, "election_type", _PREFERRED)
    refusal = None
    if not exchange.may_on_cluster(Operation.ALTER):
        refusal = DENIED[ResourceType.CLUSTER]
    elif kind not in (_PREFERRED, _UNCLEAN):
        refusal = ErrorCode.invalid_request, f"Unknown election type {kind}"
    wanted: list[tuple[str, tuple[int, ...]]] = []
    if request.topic_partitions is not None:
        wanted = [(entry.topic, entry.partitions) for entry in request.topic_partitions]
    elif refusal is None:
        # For a request that names no partitions, Kafka lists the topics it looked at, each without partitions.
        wanted = [(topic.name, ()) for topic in exchange.broker.topics]
    results = []
    for topic, indexes in wanted:
        partitions = []
        for index in indexes:
            code, message = refusal or _election(exchange.broker, topic, index)
            partitions.append({"partition_id": index, "error_code": code, "error_message": message})
        results.append({"topic": topic, "partition_result": partitions})
    return exchange.response(error_code=refusal[0] if refusal else ErrorCode.none, replica_election_results=results)


def _election(broker: BrokerContext, topic: str, index: int) -> tuple[ErrorCode, str]:
    if topic not in broker.topics:
        return ErrorCode.unknown_topic_or_partition, f"No such topic as {shown(topic)}"
    if broker.topics.partition(topic, index) is None:
        return ErrorCode.unknown_topic_or_partition, f"No such partition as {topic}-{index}"
    return ErrorCode.election_not_needed, "Leader election not needed for topic partition."


def alter_partition_reassignments(exchange: Exchange, request: AlterPartitionReassignmentsRequest) -> Answer:
    """AlterPartitionReassignments: a partition can only be assigned to this node, where it is already."""
    allowed = exchange.may_on_cluster(Operation.ALTER)
    code, message = (ErrorCode.none, None) if allowed else DENIED[ResourceType.CLUSTER]
    responses = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            outcome: tuple[ErrorCode, str | None] = (code, message)
            if allowed:
                outcome = _reassign(exchange.broker, topic.name, partition.partition_index, partition.replicas)
            partitions.append(
                {
                    "partition_index": partition.partition_index,
                    "error_code": outcome[0],
                    "error_message": outcome[1],
                }
            )
        responses.append({"name": topic.name, "partitions": partitions})
    return exchange.response(
        allow_replication_factor_change=getattr(request, "allow_replication_factor_change", True),
        error_code=code,
        error_message=message,
        responses=responses,
    )


def _reassign(
    broker: BrokerContext, topic: str, index: int, replicas: Sequence[int] | None
) -> tuple[ErrorCode, str | None]:
    if topic not in broker.topics:
        return ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {shown(topic)}."
    if broker.topics.partition(topic, index) is None:
        return ErrorCode.unknown_topic_or_partition, f"Unable to find partition {topic}:{index}."
    if replicas is None:
        return ErrorCode.no_reassignment_in_progress, None
    try:
        check_replicas(replicas, node_id=broker.node_id)
    except RefusedError as error:
        return error.code, str(error)
    return ErrorCode.none, None


def check_replicas(broker_ids: Sequence[int], *, node_id: int) -> None:
    """The replicas of one partition: only this node can be one, once. Raises `RefusedError`."""
    if not broker_ids:
        raise invalid_assignment("The manual partition assignment includes an empty replica list.")
    times = Counter(broker_ids)
    if len(times) != len(broker_ids):
        twice = min(broker_id for broker_id, count in times.items() if count > 1)
        raise invalid_assignment(f"The manual partition assignment includes the broker {twice} more than once.")
    for broker_id in sorted(broker_ids):
        if broker_id != node_id:
            raise invalid_assignment(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )


def invalid_assignment(message: str) -> RefusedError:
    return RefusedError(ErrorCode.invalid_replica_assignment, message)


def list_partition_reassignments(exchange: Exchange, request: ListPartitionReassignmentsRequest) -> Answer:
    """ListPartitionReassignments: is always empty, because one node has nothing to reassign."""
    if exchange.may_on_cluster(Operation.DESCRIBE):
        return exchange.response()
    code, message = DENIED[ResourceType.CLUSTER]
    # Kafka's refusal repeats what was asked for.
    topics = [
        {"name": topic.name, "partitions": [{"partition_index": index} for index in topic.partition_indexes]}
        for topic in request.topics or ()
    ]
    return exchange.response(error_code=code, error_message=message, topics=topics)
