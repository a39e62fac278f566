"""ElectLeaders: the one node leads every partition, so no election is ever needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Exchange
from suiro.broker.refusals import shown
from suiro.broker.security.acl import Operation
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest


_PREFERRED, _UNCLEAN = 0, 1


def handle(exchange: Exchange, request: ElectLeadersRequest) -> Answer:
    kind = getattr(request, "election_type", _PREFERRED)
    code, message = ErrorCode.none, None
    if not exchange.may_on_cluster(Operation.ALTER):
        code, message = ErrorCode.cluster_authorization_failed, "Cluster authorization failed."
    elif kind not in (_PREFERRED, _UNCLEAN):
        code, message = ErrorCode.invalid_request, f"Unknown election type {kind}"
    wanted: list[tuple[str, tuple[int, ...]]] = []
    if request.topic_partitions is not None:
        wanted = [(entry.topic, entry.partitions) for entry in request.topic_partitions]
    elif code is ErrorCode.none:
        # For a request that names no partitions, Kafka lists the topics it looked at, each without partitions.
        wanted = [(topic.name, ()) for topic in exchange.broker.topics]
    results = []
    for topic, partitions in wanted:
        found = [(index, *_outcome(exchange.broker, topic, index, code, message)) for index in partitions]
        results.append(
            exchange.make(
                "ReplicaElectionResult",
                topic=topic,
                partition_result=tuple(
                    exchange.make("PartitionResult", partition_id=index, error_code=why, error_message=words)
                    for index, why, words in found
                ),
            )
        )
    return exchange.response(error_code=code, replica_election_results=tuple(results))


def _outcome(
    broker: BrokerContext, topic: str, index: int, code: ErrorCode, message: str | None
) -> tuple[ErrorCode, str | None]:
    if code is not ErrorCode.none:
        return code, message
    if topic not in broker.topics:
        return ErrorCode.unknown_topic_or_partition, f"No such topic as {shown(topic)}"
    if broker.topics.partition(topic, index) is None:
        return ErrorCode.unknown_topic_or_partition, f"No such partition as {topic}-{index}"
    return ErrorCode.election_not_needed, "Leader election not needed for topic partition."
