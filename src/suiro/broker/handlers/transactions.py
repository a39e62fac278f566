"""Transactions and producers: their coordinator, ids and partitions, and how administrators see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from suiro.broker.context import BrokerContext
from suiro.broker.coordination.transactions.state import V1, V2, Transaction, TransactionState
from suiro.broker.exchange import DENIED, Answer, Exchange, Response
from suiro.broker.handlers import whole_ms
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.broker.storage.topics import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    InvalidTopicError,
    check_topic_name,
)
from suiro.foundation.types import TopicPartition
from suiro.log import LogError, StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
    from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest as OwnRequest
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
    from kio.schema.end_txn.v5.request import EndTxnRequest
    from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as OneCoordinatorRequest
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
    from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
    from kio.schema.list_transactions.v2.request import ListTransactionsRequest
    from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest

_GROUP = 0
_COORDINATORS = {
    _GROUP: (ResourceType.GROUP, OFFSETS_TOPIC),
    1: (ResourceType.TRANSACTIONAL_ID, TRANSACTIONS_TOPIC),
}
_FOUND = "NONE"  # Kafka's message of no error
_NOWHERE = {"node_id": -1, "host": "", "port": -1}
_FIRST_VERSION_WITH_BATCHES = 4
_STATES = {state.title: state for state in TransactionState}
_EPOCH = datetime.fromtimestamp(0, UTC)


def find_coordinator(exchange: Exchange, request: FindCoordinatorRequest) -> Answer:
    """FindCoordinator: this node coordinates every group (0) and every transactional id (1)."""
    kind = getattr(request, "key_type", _GROUP)
    host, port = exchange.broker.advertised(exchange.connection)
    here = {"node_id": exchange.broker.node_id, "host": host, "port": port}

    def found(key: str) -> dict[str, Any]:
        code, message = _check_coordinator(exchange, kind, key)
        return {"error_code": code, "error_message": message, **(here if code is ErrorCode.none else _NOWHERE)}

    if exchange.version < _FIRST_VERSION_WITH_BATCHES:
        return exchange.response(**found(cast("OneCoordinatorRequest", request).key))
    return exchange.response(
        coordinators=[{**found(key), "key": key, "error_message": ""} for key in request.coordinator_keys]
    )


def _check_coordinator(exchange: Exchange, kind: int, key: str) -> tuple[ErrorCode, str]:
    if kind not in _COORDINATORS:
        return ErrorCode.invalid_request, f"this node has no coordinator of kind {kind}"
    resource, topic = _COORDINATORS[kind]
    if not exchange.may(Operation.DESCRIBE, resource, key):
        return DENIED[resource]
    try:
        exchange.broker.internal_topic(topic)  # whoever looks for the coordinator finds its topic too
    except StorageError as error:
        return ErrorCode.coordinator_not_available, str(error)
    return ErrorCode.none, _FOUND


def init_producer_id(exchange: Exchange, request: InitProducerIdRequest) -> Answer:
    """InitProducerId: the id and epoch of a producer; for a transactional id, it also ends the open transaction."""
    code, producer_id, producer_epoch = _new_producer(exchange, request)
    code = _fenced(exchange, code, known_since=4)
    return exchange.response(error_code=code, producer_id=producer_id, producer_epoch=producer_epoch)


def _fenced(exchange: Exchange, code: ErrorCode, *, known_since: int) -> ErrorCode:
    """PRODUCER_FENCED in the versions that know it."""
    is_unknown = code is ErrorCode.producer_fenced and exchange.version < known_since
    return ErrorCode.invalid_producer_epoch if is_unknown else code


def _new_producer(exchange: Exchange, request: InitProducerIdRequest) -> tuple[ErrorCode, int, int]:
    transactional_id = request.transactional_id
    if transactional_id is None:
        if not _may_be_idempotent(exchange):
            return ErrorCode.cluster_authorization_failed, -1, -1
    elif not exchange.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.transactional_id_authorization_failed, -1, -1
    expected = (getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1))
    if (expected[0] == -1) != (expected[1] == -1):
        return ErrorCode.invalid_request, -1, -1
    return exchange.broker.transactions.init_producer_id(
        transactional_id,
        timeout_ms=whole_ms(request.transaction_timeout),
        expected=None if expected == (-1, -1) else expected,
    )


def _may_be_idempotent(exchange: Exchange) -> bool:
    """A client that may write to any topic may also be an idempotent producer (KIP-679)."""
    if exchange.permits(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME):
        return True
    return exchange.broker.authorizer.allows_any(exchange.connection.session, Operation.WRITE, ResourceType.TOPIC)


def add_partitions_to_txn(exchange: Exchange, request: AddPartitionsToTxnRequest) -> Answer:
    """AddPartitionsToTxn: all partitions of a transaction or none.

    Up to version 3 a producer sends it for its own transaction. From 4 on it is between brokers: several transactions
    in one request, each to be added to or only to be verified; who may act for the cluster may send it here too.
    """
    if exchange.version < 4:
        own = cast("OwnRequest", request)
        codes = _add_own(exchange, own)
        return exchange.response(results_by_topic_v3_and_below=_added(own.v3_and_below_topics, codes))
    exchange.check_on_cluster(Operation.CLUSTER_ACTION)
    return exchange.response(
        results_by_transaction=[
            {
                "transactional_id": transaction.transactional_id,
                "topic_results": _added(transaction.topics, _add_or_verify(exchange.broker, transaction)),
            }
            for transaction in request.transactions
        ]
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
    refused = _not_addable(exchange.broker, wanted, forbidden)
    if refused:
        return refused
    code = exchange.broker.transactions.add_partitions(
        transactional_id,
        producer=(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        partitions=frozenset(wanted),
        version=V1,
    )
    return dict.fromkeys(wanted, _fenced(exchange, code, known_since=2))


def _add_or_verify(broker: BrokerContext, transaction: Any) -> Mapping[TopicPartition, ErrorCode]:
    wanted = _places(transaction.topics)
    refused = _not_addable(broker, wanted, set())
    if refused:
        return refused
    producer = (transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return {
            place: broker.transactions.verify(transaction.transactional_id, producer=producer, partition=place)
            for place in wanted
        }
    code = broker.transactions.add_partitions(
        transaction.transactional_id, producer=producer, partitions=frozenset(wanted), version=V2
    )
    return dict.fromkeys(wanted, code)


def _not_addable(
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


def _added(topics: Any, codes: Mapping[TopicPartition, ErrorCode]) -> list[Any]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": codes[topic.name, index]}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]


def add_offsets_to_txn(exchange: Exchange, request: AddOffsetsToTxnRequest) -> Answer:
    """AddOffsetsToTxn: the group's partition of `__consumer_offsets` joins the transaction (V1; V2 needs no
    request)."""
    exchange.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    exchange.check(Operation.READ, ResourceType.GROUP, request.group_id)
    offsets = exchange.broker.groups.partition_of(request.group_id)
    code = exchange.broker.transactions.add_partitions(
        request.transactional_id,
        producer=(request.producer_id, request.producer_epoch),
        partitions=frozenset(((offsets.topic, offsets.index),)),
        version=V1,
    )
    return exchange.response(error_code=_fenced(exchange, code, known_since=2))


def end_txn(exchange: Exchange, request: EndTxnRequest) -> Answer:
    """EndTxn: when the response is NONE, the decision is written, and so are the markers of all partitions that can be
    written.

    Version 5 and up is transactions V2: the answer bears the identity of the next transaction.
    """
    exchange.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    code, producer_id, producer_epoch = exchange.broker.transactions.end(
        request.transactional_id,
        producer=(request.producer_id, request.producer_epoch),
        commit=request.committed,
        version=V2 if exchange.version >= 5 else V1,
    )
    code = _fenced(exchange, code, known_since=2)
    return exchange.response(error_code=code, producer_id=producer_id, producer_epoch=producer_epoch)


def write_txn_markers(exchange: Exchange, request: WriteTxnMarkersRequest) -> Answer:
    """WriteTxnMarkers: writes transaction markers, for another broker or a tool that ends a hanging transaction
    (`kafka-transactions.sh abort`)."""
    may_alter = exchange.permits(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    allowed = may_alter or exchange.may_on_cluster(Operation.CLUSTER_ACTION)

    def code_of(marker: Any, topic: str, index: int) -> ErrorCode:
        return _mark(exchange.broker, marker, topic, index) if allowed else ErrorCode.cluster_authorization_failed

    return exchange.response(
        markers=[
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": index, "error_code": code_of(marker, topic.name, index)}
                            for index in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.markers
        ]
    )


def _mark(broker: BrokerContext, marker: Any, topic: str, index: int) -> ErrorCode:
    partition = broker.topics.partition(topic, index)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition
    try:
        broker.transactions.write_marker(
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


def describe_transactions(exchange: Exchange, request: DescribeTransactionsRequest) -> Answer:
    """DescribeTransactions: the state of transactional ids, with the partitions that the client may describe."""
    # Each once: a large transaction named thousands of times would fill the node's memory.
    ids = dict.fromkeys(request.transactional_ids)
    return exchange.response(transaction_states=[_transaction(exchange, name) for name in ids])


def _transaction(exchange: Exchange, transactional_id: str) -> dict[str, Any]:
    described = {"transactional_id": transactional_id}
    if not exchange.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return {**described, "error_code": ErrorCode.transactional_id_authorization_failed}
    if not transactional_id:
        return {**described, "error_code": ErrorCode.invalid_request}
    transaction = exchange.broker.transactions.find(transactional_id)
    if transaction is None:
        return {**described, "error_code": ErrorCode.transactional_id_not_found}
    places = groupby(sorted(transaction.partitions), key=lambda place: place[0])
    return {
        **described,
        "transaction_state": transaction.state.title,
        "transaction_timeout": timedelta(milliseconds=transaction.timeout_ms),
        "transaction_start_time": _EPOCH + timedelta(milliseconds=max(transaction.start_ms, -1)),
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": [index for _, index in some]}
            for topic, some in places
            if exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ],
    }


def list_transactions(exchange: Exchange, request: ListTransactionsRequest) -> Answer:
    """ListTransactions: the transactional ids that match the filters and that the client may describe."""
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    producer_ids = frozenset(request.producer_id_filters)
    duration_ms = getattr(request, "duration_filter", -1)
    now = exchange.broker.clock.wall_ms()
    found = [
        transaction
        for transaction in exchange.broker.transactions
        if (not producer_ids or transaction.producer_id in producer_ids)
        and (not request.state_filters or transaction.state in states)
        and (duration_ms < 0 or now - transaction.start_ms > duration_ms)
        and exchange.permits(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
    ]
    pattern = getattr(request, "transactional_id_pattern", None)
    if not pattern:
        return _listed(exchange, request, found)
    return exchange.in_task(_list_matching(exchange, request, pattern, found))


async def _list_matching(
    exchange: Exchange, request: ListTransactionsRequest, pattern: str, transactions: Iterable[Transaction]
) -> Response:
    """With those whose whole id matches. The engine is loaded for it."""
    from suiro.broker.coordination.groups.regexes import check_regex, matching_topics

    try:
        check_regex(pattern)
    except RefusedError:
        return exchange.response(error_code=ErrorCode.invalid_regular_expression)
    by_id = {transaction.transactional_id: transaction for transaction in transactions}
    names = await exchange.broker.matchers.run(partial(matching_topics, pattern, list(by_id)))
    return _listed(exchange, request, [found for name, found in by_id.items() if name in names])


def _listed(exchange: Exchange, request: ListTransactionsRequest, transactions: Iterable[Transaction]) -> Response:
    return exchange.response(
        unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
        transaction_states=[
            {
                "transactional_id": transaction.transactional_id,
                "producer_id": transaction.producer_id,
                "transaction_state": transaction.state.title,
            }
            for transaction in transactions
        ],
    )


def describe_producers(exchange: Exchange, request: DescribeProducersRequest) -> Answer:
    """DescribeProducers: the producers of a partition, and its open transactions."""
    # Each partition once: one with many producers, named thousands of times, would fill the node's memory.
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return exchange.response(topics=[_producers_of_topic(exchange, name, some) for name, some in wanted.items()])


def _producers_of_topic(exchange: Exchange, name: str, indexes: Iterable[int]) -> dict[str, Any]:
    refusal: RefusedError | None = None
    try:
        check_topic_name(name)
    except InvalidTopicError as error:
        refusal = error
    else:
        if not exchange.may(Operation.READ, ResourceType.TOPIC, name):
            refusal = RefusedError(ErrorCode.topic_authorization_failed)
    partitions: list[dict[str, Any]] = []
    for index in indexes:
        partition = None if refusal else exchange.broker.topics.partition(name, index)
        answer: dict[str, Any] = {"partition_index": index}
        if partition is not None:
            answer["active_producers"] = [
                {
                    "producer_id": entry.producer_id,
                    "producer_epoch": entry.producer_epoch,
                    "last_sequence": entry.last_sequence,
                    "last_timestamp": entry.last_timestamp,
                    "coordinator_epoch": entry.coordinator_epoch,
                    "current_txn_start_offset": entry.transaction_first_offset,
                }
                for entry in partition.log.producer_states()
            ]
        elif refusal is None:
            answer["error_code"] = ErrorCode.unknown_topic_or_partition
        else:
            answer |= {"error_code": refusal.code, "error_message": str(refusal) or None}
        partitions.append(answer)
    return {"name": name, "partitions": partitions}
