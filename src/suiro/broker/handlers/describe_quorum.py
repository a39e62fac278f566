"""DescribeQuorum: the node is a quorum of one, its own leader and only voter.

There is no log of metadata behind it, so its end and high watermark are the count of what administrators changed in
features: it never goes back, and nobody lags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from suiro.broker.answers import Answer
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation
from suiro.broker.storage.topics import METADATA_TOPIC
from suiro.config import read_properties
from suiro.log.checkpoints import id_from_text
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest

_CONTROLLER = "CONTROLLER"


def handle(exchange: Exchange, request: DescribeQuorumRequest) -> Answer:
    if not exchange.may_on_cluster(Operation.DESCRIBE):
        code, message = ErrorCode.cluster_authorization_failed, "Cluster authorization failed."
        return exchange.response(error_code=code, error_message=message, topics=(), nodes=())
    wanted = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions]) for topic in request.topics
    ]
    known = wanted == [(METADATA_TOPIC, [0])]
    make_partition = _quorum if known else _unknown
    topics = tuple(
        exchange.make(
            "TopicData",
            topic_name=name,
            partitions=tuple(make_partition(exchange, index) for index in partitions),
        )
        for name, partitions in wanted
    )
    return exchange.response(
        error_code=ErrorCode.none,
        error_message="",
        topics=topics,
        nodes=(_node(exchange),) if known and exchange.version >= 2 else (),
    )


def _quorum(exchange: Exchange, index: int) -> Any:
    broker = exchange.broker
    now, end = broker.clock.wall_ms(), broker.features.epoch
    me = exchange.make(
        "ReplicaState",
        replica_id=broker.node_id,
        replica_directory_id=_directory_id(broker),
        log_end_offset=end,
        last_fetch_timestamp=now,
        last_caught_up_timestamp=now,
    )
    return exchange.make(
        "PartitionData",
        partition_index=index,
        error_code=ErrorCode.none,
        error_message="",
        leader_id=broker.node_id,
        leader_epoch=1,
        high_watermark=end,
        current_voters=(me,),
        observers=(),
    )


def _directory_id(broker: BrokerContext) -> UUID | None:
    """The data directory's own id, as in Kafka; None if a Kafka before 3.7 made the directory, without an id."""
    found = read_properties(broker.data / "meta.properties").get("directory.id")
    return id_from_text(found) if found else None


def _unknown(exchange: Exchange, index: int) -> Any:
    return exchange.make(
        "PartitionData",
        partition_index=index,
        error_code=ErrorCode.unknown_topic_or_partition,
        error_message="This server does not host this topic-partition.",
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=(),
        observers=(),
    )


def _node(exchange: Exchange) -> Any:
    host, port = exchange.broker.advertised(exchange.connection)
    listener = exchange.make("Listener", name=_CONTROLLER, host=host, port=port)
    return exchange.make("Node", node_id=exchange.broker.node_id, listeners=(listener,))
