"""Metadata: brokers (this one), topics and their partitions. Creates topics on first use where that is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.security import CLUSTER_NAME, Operation, ResourceType, authorized_operations
from suiro.broker.topics import InvalidTopicError, Topic, check_topic_name
from suiro.protocol.messages import ErrorCode

_TOPIC_IDS_SINCE = 12
_NO_OPERATIONS = -(2**31)
"""Nobody asked which operations are allowed."""


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    wanted = request.topics
    everything = wanted is None or (exchange.version == 0 and not wanted)
    if everything:
        topics = _all(broker, exchange, request)
    elif exchange.version < _TOPIC_IDS_SINCE and any(
        entry.name is None or getattr(entry, "topic_id", None) for entry in wanted
    ):
        # Versions 10 and 11 have the field for ids in the schema, but no broker answers by them.
        return _refused(exchange, wanted, ErrorCode.invalid_request)
    else:
        ids = list(dict.fromkeys(id for entry in wanted if (id := getattr(entry, "topic_id", None))))
        if not ids and any(entry.name is None for entry in wanted):
            return _refused(exchange, wanted, ErrorCode.unknown_server_error)  # Kafka trips over this, too.
        if ids:
            topics = _by_id(broker, exchange, request, ids)
        else:
            topics = _by_name(broker, exchange, request, dict.fromkeys(entry.name for entry in wanted))
    host, port = broker.advertised(exchange.connection)
    return exchange.response(
        throttle_time=NO_THROTTLE,
        brokers=(
            exchange.make("MetadataResponseBroker", node_id=broker.node_id, host=host, port=port, rack=None),
        ),
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=tuple(topics),
        cluster_authorized_operations=_cluster_operations(broker, exchange, request),
        error_code=ErrorCode.none,
    )


def _all(broker: Broker, exchange: Exchange, request: Any) -> list[Any]:
    """Every topic that the client may know of. That there are others is not said, nor written down as a denial."""
    session, permits = exchange.connection.session, broker.authorizer.permits
    return [
        _found(broker, exchange, request, topic)
        for topic in broker.topics
        if permits(session, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
    ]


def _by_id(broker: Broker, exchange: Exchange, request: Any, ids: Iterable[UUID]) -> list[Any]:
    unknown, found, denied = [], [], []
    for topic_id in ids:
        topic = broker.topics.topic_by_id(topic_id)
        if topic is None:
            unknown.append(_missing(exchange, ErrorCode.unknown_topic_id, topic_id=topic_id))
        elif exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            found.append(_found(broker, exchange, request, topic))
        else:  # An id is no secret, the name is.
            denied.append(_missing(exchange, ErrorCode.topic_authorization_failed, topic_id=topic_id))
    return [*unknown, *found, *denied]


def _by_name(broker: Broker, exchange: Exchange, request: Any, names: Iterable[str]) -> list[Any]:
    found, absent, not_created, denied = [], [], [], []
    creates = (
        getattr(request, "allow_auto_topic_creation", True) and broker.settings.auto_create_topics_enable
    )
    for name in names:
        if not exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            denied.append(_missing(exchange, ErrorCode.topic_authorization_failed, name=name))
            continue
        topic, code = broker.topics.topic(name), ErrorCode.unknown_topic_or_partition
        if topic is None and creates and not _may_create(broker, exchange, name):
            code = ErrorCode.topic_authorization_failed
            internal = broker.is_internal(name)
            not_created.append(_missing(exchange, code, name=name, is_internal=internal))
            continue
        if topic is None:
            topic, code = _create(broker, name) if creates else (None, absent_code(name))
        if topic is not None:
            found.append(_found(broker, exchange, request, topic))
        else:
            absent.append(
                _missing(
                    exchange,
                    code,
                    name=name,
                    is_internal=broker.is_internal(name),
                    operations=_topic_operations(broker, exchange, request, name),
                )
            )
    return [*found, *absent, *not_created, *denied]


def _may_create(broker: Broker, exchange: Exchange, name: str) -> bool:
    on_cluster = broker.authorizer.permits(
        exchange.connection.session, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME
    )
    return on_cluster or exchange.may(Operation.CREATE, ResourceType.TOPIC, name)


def absent_code(name: str) -> ErrorCode:
    """What a client hears of a topic that does not exist."""
    try:
        check_topic_name(name)
    except InvalidTopicError:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition


def _create(broker: Broker, name: str) -> tuple[Topic | None, ErrorCode]:
    try:
        broker.topics.check_new_name(name)
    except InvalidTopicError:  # A name that only collides with another's is no invalid one: it stays unknown.
        return None, absent_code(name)
    return broker.create_topic(name), ErrorCode.none


def _found(broker: Broker, exchange: Exchange, request: Any, topic: Topic) -> Any:
    me = (broker.node_id,)
    return exchange.make(
        "MetadataResponseTopic",
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(
            exchange.make(
                "MetadataResponsePartition",
                error_code=ErrorCode.none,
                partition_index=partition.index,
                leader_id=broker.node_id,
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=me,
                isr_nodes=me,
                offline_replicas=(),
            )
            for partition in topic.partitions
        ),
        topic_authorized_operations=_topic_operations(broker, exchange, request, topic.name),
    )


def _missing(
    exchange: Exchange,
    code: ErrorCode,
    *,
    name: str | None = None,
    topic_id: UUID | None = None,
    is_internal: bool = False,
    operations: int = _NO_OPERATIONS,
) -> Any:
    return exchange.make(
        "MetadataResponseTopic",
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=is_internal,
        partitions=(),
        topic_authorized_operations=operations,
    )


def _refused(exchange: Exchange, wanted: Iterable[Any], code: ErrorCode) -> Any:
    """The same error for everything: the request itself is wrong."""
    return exchange.response(
        throttle_time=NO_THROTTLE,
        brokers=(),
        cluster_id=None,
        controller_id=-1,
        topics=tuple(
            _missing(exchange, code, name=entry.name or "", topic_id=entry.topic_id) for entry in wanted
        ),
        error_code=code,
    )


def _topic_operations(broker: Broker, exchange: Exchange, request: Any, name: str) -> int:
    if not getattr(request, "include_topic_authorized_operations", False):
        return _NO_OPERATIONS
    return authorized_operations(broker.authorizer, exchange.connection.session, ResourceType.TOPIC, name)


def _cluster_operations(broker: Broker, exchange: Exchange, request: Any) -> int:
    if not getattr(request, "include_cluster_authorized_operations", False):
        return _NO_OPERATIONS
    if not exchange.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    session = exchange.connection.session
    return authorized_operations(broker.authorizer, session, ResourceType.CLUSTER, CLUSTER_NAME)
