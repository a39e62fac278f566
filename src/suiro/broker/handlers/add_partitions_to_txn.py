"""AddPartitionsToTxn: all partitions of a transaction or none.

Up to version 3 a producer sends it for its own transaction. From 4 on it is between brokers: several transactions
in one request, each to be added to or only to be verified; who may act for the cluster may send it here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from suiro.broker.answers import Answer
from suiro.broker.context import BrokerContext
from suiro.broker.coordination.transactions.state import V1, V2
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation, ResourceType
from suiro.broker.storage.topics import INTERNAL_TOPICS
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest as OwnRequest
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest


def handle(exchange: Exchange, request: AddPartitionsToTxnRequest) -> Answer:
    if exchange.version < 4:
        own = cast("OwnRequest", request)
        codes = _add_own(exchange, own)
        results = _results(exchange, own.v3_and_below_topics, codes)
        return exchange.response(results_by_topic_v3_and_below=results)
    if not exchange.may_on_cluster(Operation.CLUSTER_ACTION):
        return exchange.response(error_code=ErrorCode.cluster_authorization_failed, results_by_transaction=())
    return exchange.response(
        error_code=ErrorCode.none,
        results_by_transaction=tuple(
            exchange.make(
                "AddPartitionsToTxnResult",
                transactional_id=transaction.transactional_id,
                topic_results=_results(exchange, transaction.topics, _add_or_verify(exchange.broker, transaction)),
            )
            for transaction in request.transactions
        ),
    )


def _add_own(exchange: Exchange, request: OwnRequest) -> Mapping[TopicPartition, ErrorCode]:
    wanted = _places(request.v3_and_below_topics)
    transactional_id = request.v3_and_below_transactional_id
    if not exchange.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return dict.fromkeys(wanted, ErrorCode.transactional_id_authorization_failed)
    forbidden = {
        topic
        for topic in {topic for topic, _ in wanted}
        if topic in INTERNAL_TOPICS or not exchange.may(Operation.WRITE, ResourceType.TOPIC, topic)
    }
    refused = _refused(exchange.broker, wanted, forbidden)
    if refused:
        return refused
    code = exchange.broker.transactions.add_partitions(
        transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        partitions=frozenset(wanted),
        version=V1,
    )
    if code is ErrorCode.producer_fenced and exchange.version < 2:
        code = ErrorCode.invalid_producer_epoch
    return dict.fromkeys(wanted, code)


def _add_or_verify(broker: BrokerContext, transaction: Any) -> Mapping[TopicPartition, ErrorCode]:
    wanted = _places(transaction.topics)
    refused = _refused(broker, wanted, set())
    if refused:
        return refused
    producer = {"producer_id": transaction.producer_id, "producer_epoch": transaction.producer_epoch}
    if transaction.verify_only:
        return {
            place: broker.transactions.verify(transaction.transactional_id, **producer, partition=place)
            for place in wanted
        }
    code = broker.transactions.add_partitions(
        transaction.transactional_id, **producer, partitions=frozenset(wanted), version=V2
    )
    return dict.fromkeys(wanted, code)


def _refused(
    broker: BrokerContext, wanted: list[TopicPartition], forbidden: set[str]
) -> dict[TopicPartition, ErrorCode]:
    """The code of each partition if one of them cannot be added; otherwise nothing."""
    codes = {}
    for topic, index in wanted:
        if topic in forbidden:
            codes[topic, index] = ErrorCode.topic_authorization_failed
        elif broker.topics.partition(topic, index) is None:
            codes[topic, index] = ErrorCode.unknown_topic_or_partition
        else:
            codes[topic, index] = ErrorCode.operation_not_attempted
    return {} if set(codes.values()) <= {ErrorCode.operation_not_attempted} else codes


def _places(topics: Any) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _results(exchange: Exchange, topics: Any, codes: Mapping[TopicPartition, ErrorCode]) -> tuple[Any, ...]:
    return tuple(
        exchange.make(
            "AddPartitionsToTxnTopicResult",
            name=topic.name,
            results_by_partition=tuple(
                exchange.make(
                    "AddPartitionsToTxnPartitionResult",
                    partition_index=index,
                    partition_error_code=codes[topic.name, index],
                )
                for index in topic.partitions
            ),
        )
        for topic in topics
    )
