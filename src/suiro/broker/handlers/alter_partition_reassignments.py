"""AlterPartitionReassignments: a partition can only be assigned to this node, where it is already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from suiro.broker.answers import Answer
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.shared.assignments import check_replicas
from suiro.broker.refusals import RefusedError, shown
from suiro.broker.security.acl import Operation
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest


def handle(exchange: Exchange, request: AlterPartitionReassignmentsRequest) -> Answer:
    code, message = ErrorCode.none, None
    if not exchange.may_on_cluster(Operation.ALTER):
        code, message = ErrorCode.cluster_authorization_failed, "Cluster authorization failed."
    responses = []
    for topic in request.topics:
        outcomes = []
        for partition in topic.partitions:
            outcome: tuple[ErrorCode, str | None] = (code, message)
            if code is ErrorCode.none:
                outcome = _reassign(exchange.broker, topic.name, partition.partition_index, partition.replicas)
            outcomes.append(
                exchange.make(
                    "ReassignablePartitionResponse",
                    partition_index=partition.partition_index,
                    error_code=outcome[0],
                    error_message=outcome[1],
                )
            )
        responses.append(exchange.make("ReassignableTopicResponse", name=topic.name, partitions=tuple(outcomes)))
    return exchange.response(
        allow_replication_factor_change=getattr(request, "allow_replication_factor_change", True),
        error_code=code,
        error_message=message,
        responses=tuple(responses),
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
