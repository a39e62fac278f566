"""ListPartitionReassignments: is always empty, because one node has nothing to reassign."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest


def handle(exchange: Exchange, request: ListPartitionReassignmentsRequest) -> Answer:
    code, message, topics = ErrorCode.none, None, ()
    if not exchange.may_on_cluster(Operation.DESCRIBE):
        code, message = ErrorCode.cluster_authorization_failed, "Cluster authorization failed."
        topics = tuple(_asked(exchange, topic) for topic in request.topics or ())
    return exchange.response(error_code=code, error_message=message, topics=topics)


def _asked(exchange: Exchange, topic: Any) -> Any:
    """Kafka's refusal repeats what was asked for."""
    return exchange.make(
        "OngoingTopicReassignment",
        name=topic.name,
        partitions=tuple(
            exchange.make(
                "OngoingPartitionReassignment",
                partition_index=index,
                replicas=(),
                adding_replicas=(),
                removing_replicas=(),
            )
            for index in topic.partition_indexes
        ),
    )
