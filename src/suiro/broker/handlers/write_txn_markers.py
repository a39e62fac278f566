"""WriteTxnMarkers: writes transaction markers, for another broker or a tool that ends a hanging transaction
(`kafka-transactions.sh abort`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.context import BrokerContext
from suiro.broker.coordination.transactions.markers import write_marker
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.log import LogError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest


def handle(exchange: Exchange, request: WriteTxnMarkersRequest) -> Answer:
    may_alter = exchange.permits(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    allowed = may_alter or exchange.may_on_cluster(Operation.CLUSTER_ACTION)
    return exchange.response(
        markers=tuple(
            exchange.make(
                "WritableTxnMarkerResult",
                producer_id=marker.producer_id,
                topics=tuple(_topic(exchange, marker, topic, allowed) for topic in marker.topics),
            )
            for marker in request.markers
        )
    )


def _topic(exchange: Exchange, marker: Any, topic: Any, allowed: bool) -> Any:
    def partitions() -> Iterator[Any]:
        for index in topic.partition_indexes:
            code = ErrorCode.cluster_authorization_failed
            if allowed:
                code = _write(exchange.broker, marker, topic.name, index)
            yield exchange.make("WritableTxnMarkerPartitionResult", partition_index=index, error_code=code)

    return exchange.make("WritableTxnMarkerTopicResult", name=topic.name, partitions=tuple(partitions()))


def _write(broker: BrokerContext, marker: Any, topic: str, index: int) -> ErrorCode:
    partition = broker.topics.partition(topic, index)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition
    try:
        write_marker(
            broker,
            partition,
            commit=marker.transaction_result,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            version=getattr(marker, "transaction_version", 0),
        )
    except LogError as error:
        return error.code
    return ErrorCode.none
