"""What clients must know of topics: Metadata, and DescribeTopicPartitions (KIP-966).

The answer of Metadata is laid out by hand: every client asks for it again and again, and made of kio's messages a node
of thousands of partitions took a tenth of a second for each.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from suiro.broker.context import BrokerContext
from suiro.broker.exchange import OPERATIONS_NOT_ASKED, Answer, Exchange, RawResponse, Response
from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.broker.storage.topics import INTERNAL_TOPICS, InvalidTopicError, Partition, Topic, check_topic_name
from suiro.log import StorageError
from suiro.protocol.fields import array_length, string
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
    from kio.schema.metadata.v13.request import MetadataRequest


logger = logging.getLogger(__name__)

_TOPIC_IDS_SINCE = 12
MAX_PARTITIONS_CREATED = 100
"""Of all topics that one request creates by naming them, and at least one topic. To the other names the answer is what
Kafka answers while a topic is being created, and clients ask again."""


class _Described(NamedTuple):
    """One topic in the answer."""

    code: ErrorCode
    name: str | None = None
    topic_id: UUID | None = None
    is_internal: bool = False
    partitions: Sequence[Partition] = ()
    operations: int = OPERATIONS_NOT_ASKED


def metadata(exchange: Exchange, request: MetadataRequest) -> Answer:
    """Metadata: brokers (this one), topics and their partitions. Creates topics on first use where that is allowed."""
    broker = exchange.broker
    wanted = request.topics
    if wanted is None or (exchange.version == 0 and not wanted):
        topics = _all(exchange, request)
    elif exchange.version < _TOPIC_IDS_SINCE and any(
        entry.name is None or getattr(entry, "topic_id", None) for entry in wanted
    ):
        # Versions 10 and 11 have a field for ids, but no broker answers by them.
        return _refused(exchange, wanted, ErrorCode.invalid_request)
    else:
        ids = list(dict.fromkeys(id for entry in wanted if (id := getattr(entry, "topic_id", None))))
        if not ids and any(entry.name is None for entry in wanted):
            return _refused(exchange, wanted, ErrorCode.unknown_server_error)  # Kafka trips over this, too.
        if ids:
            topics = _by_id(exchange, request, ids)
        else:
            names = dict.fromkeys(entry.name for entry in wanted if entry.name is not None)
            topics = _by_name(exchange, request, names)
    host, port = broker.advertised(exchange.connection)
    return _layout(
        exchange.version,
        topics,
        node=(broker.node_id, host, port),
        cluster_id=broker.cluster_id,
        cluster_operations=exchange.cluster_operations(
            asked=getattr(request, "include_cluster_authorized_operations", False)
        ),
    )


def _all(exchange: Exchange, request: MetadataRequest) -> list[_Described]:
    """Every topic that the client may know of. The others are not mentioned, and are no denials."""
    return [
        _found(exchange, request, topic)
        for topic in exchange.broker.topics
        if exchange.permits(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
    ]


def _by_id(exchange: Exchange, request: MetadataRequest, ids: Iterable[UUID]) -> list[_Described]:
    unknown, found, denied = [], [], []
    for topic_id in ids:
        topic = exchange.broker.topics.topic_by_id(topic_id)
        if topic is None:
            unknown.append(_Described(code=ErrorCode.unknown_topic_id, topic_id=topic_id))
        elif exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            found.append(_found(exchange, request, topic))
        else:  # An id is no secret, the name is.
            denied.append(_Described(code=ErrorCode.topic_authorization_failed, topic_id=topic_id))
    return [*unknown, *found, *denied]


def _by_name(exchange: Exchange, request: MetadataRequest, names: Iterable[str]) -> list[_Described]:
    broker = exchange.broker
    creates = getattr(request, "allow_auto_topic_creation", True) and broker.settings.auto_create_topics_enable
    made = _Made(broker)
    try:
        with broker.topics.together():
            return _named(exchange, request, names, made if creates else None)
    except StorageError as error:  # none of the new ones is surely on the disk
        logger.error("cannot create %d topics, which a client asked for: %s", len(made.topics), error)
        made.take_back()
        return _named(exchange, request, names, None)


def _named(
    exchange: Exchange,
    request: MetadataRequest,
    names: Iterable[str],
    made: _Made | None,
) -> list[_Described]:
    """`made` creates the topics that do not exist; None: they are not created."""
    found, absent, not_created, denied = [], [], [], []
    for name in names:
        if not exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            denied.append(_Described(code=ErrorCode.topic_authorization_failed, name=name))
            continue
        topic, code = exchange.broker.topics.topic(name), ErrorCode.unknown_topic_or_partition
        if topic is None and made is not None and not _may_create(exchange, name):
            code = ErrorCode.topic_authorization_failed
            not_created.append(_Described(code=code, name=name, is_internal=name in INTERNAL_TOPICS))
            continue
        if topic is None:
            topic, code = (None, _absent_code(name)) if made is None else made.create(name)
        if topic is not None:
            found.append(_found(exchange, request, topic))
        else:
            operations = _topic_operations(exchange, request, name)
            absent.append(_Described(code, name, is_internal=name in INTERNAL_TOPICS, operations=operations))
    return [*found, *absent, *not_created, *denied]


def _may_create(exchange: Exchange, name: str) -> bool:
    on_cluster = exchange.permits(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    return on_cluster or exchange.may(Operation.CREATE, ResourceType.TOPIC, name)


def _absent_code(name: str) -> ErrorCode:
    """The code for a topic that does not exist."""
    try:
        check_topic_name(name)
    except InvalidTopicError:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition


class _Made:
    """The topics that one request creates."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._is_full = False
        self.topics: list[Topic] = []

    def create(self, name: str) -> tuple[Topic | None, ErrorCode]:
        broker = self._broker
        try:
            broker.topics.check_new_name(name)
        except InvalidTopicError:
            # A name that only collides with another one is valid: it stays unknown.
            return None, _absent_code(name)
        if self._is_full or broker.topics.is_changing(name):  # clients ask again
            return None, ErrorCode.unknown_topic_or_partition
        try:
            topic = broker.create_topic(name)
        except StorageError as error:  # clients ask again
            logger.error("cannot create topic %s, which a client asked for: %s", name, error)
            self._is_full = True
            return None, ErrorCode.unknown_topic_or_partition
        self.topics.append(topic)
        self._is_full = sum(len(made.partitions) for made in self.topics) >= MAX_PARTITIONS_CREATED
        return topic, ErrorCode.none

    def take_back(self) -> None:
        for topic in self.topics:
            with contextlib.suppress(StorageError):
                self._broker.delete_topic(topic)


def _found(exchange: Exchange, request: MetadataRequest, topic: Topic) -> _Described:
    operations = _topic_operations(exchange, request, topic.name)
    return _Described(ErrorCode.none, topic.name, topic.topic_id, topic.is_internal, topic.partitions, operations)


def _refused(exchange: Exchange, wanted: Iterable[Any], code: ErrorCode) -> Response:
    """The same error for everything: the request itself is wrong."""
    topics = [{"error_code": code, "name": entry.name or "", "topic_id": entry.topic_id} for entry in wanted]
    return exchange.response(cluster_id=None, topics=topics, error_code=code)


def _topic_operations(exchange: Exchange, request: MetadataRequest, name: str) -> int:
    asked = getattr(request, "include_topic_authorized_operations", False)
    return exchange.operations(ResourceType.TOPIC, name, asked=asked)


# MetadataResponse by hand. Flexible versions (9 and up) have compact lengths, and a tag section (empty) after every
# structure.

_NO_TAGS = b"\0"
_NODE = struct.Struct(">i")
_PARTITION = struct.Struct(">hii")  # error, index, leader
_PARTITION_7 = struct.Struct(">hiii")  # and the leader's epoch


def _layout(
    version: int,
    topics: Sequence[_Described],
    *,
    node: tuple[int, str, int],
    cluster_id: str,
    cluster_operations: int,
) -> RawResponse:
    """`node`: its id, and the host and port that this client is told."""
    flexible = version >= 9
    tags = _NO_TAGS if flexible else b""
    node_id, host, port = node
    body = bytearray(b"\0\0\0\0" if version >= 3 else b"")  # throttle time
    body += array_length(1, flexible=flexible)
    body += _NODE.pack(node_id) + string(host, flexible=flexible) + _NODE.pack(port)
    if version >= 1:
        body += string(None, flexible=flexible)  # no rack
    body += tags
    if version >= 2:
        body += string(cluster_id, flexible=flexible)
    if version >= 1:
        body += _NODE.pack(node_id)  # the controller
    body += array_length(len(topics), flexible=flexible)
    only_us = array_length(1, flexible=flexible) + _NODE.pack(node_id)
    nobody = array_length(0, flexible=flexible) if version >= 5 else b""
    replicas = only_us + only_us + nobody + tags  # replicas, those in sync, those offline
    for topic in topics:
        body += topic.code.to_bytes(2, "big", signed=True) + string(topic.name, flexible=flexible)
        if version >= 10:
            body += topic.topic_id.bytes if topic.topic_id is not None else bytes(16)
        if version >= 1:
            body += b"\1" if topic.is_internal else b"\0"
        body += array_length(len(topic.partitions), flexible=flexible)
        if version >= 7:
            pack = _PARTITION_7.pack
            body += b"".join(
                [pack(0, part.index, node_id, part.log.leader_epoch) + replicas for part in topic.partitions]
            )
        else:
            body += b"".join([_PARTITION.pack(0, part.index, node_id) + replicas for part in topic.partitions])
        if version >= 8:
            body += topic.operations.to_bytes(4, "big", signed=True)
        body += tags
    if 8 <= version <= 10:
        body += cluster_operations.to_bytes(4, "big", signed=True)
    if version >= 13:
        body += b"\0\0"  # no error
    body += tags
    return RawResponse([bytes(body)], flexible, throttle_at=0 if version >= 3 else None)


def describe_topic_partitions(exchange: Exchange, request: DescribeTopicPartitionsRequest) -> Answer:
    """DescribeTopicPartitions (KIP-966): topics in the order of their names, a page of partitions at a time.

    A page that ends early names in its cursor the partition that the next request begins with. A topic that does not
    exist takes no place in the page.
    """
    cursor = request.cursor
    start = "" if cursor is None else cursor.topic_name

    def refused(code: ErrorCode) -> Response:
        """The same error for everything: the request itself is wrong."""
        return exchange.response(topics=[{"name": topic.name, "error_code": code} for topic in request.topics])

    wanted: set[str]
    allowed: set[str]
    if request.topics:
        wanted = {topic.name for topic in request.topics if topic.name >= start}
        if "" in wanted:
            return refused(ErrorCode.unknown_server_error)  # Kafka trips over this, too.
        if cursor is not None and start not in wanted:
            return refused(ErrorCode.invalid_request)
        allowed = {name for name in wanted if exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, name)}
    else:
        wanted = allowed = {
            topic.name
            for topic in exchange.broker.topics
            if topic.name >= start and exchange.permits(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        }
    if cursor is not None and start in allowed and cursor.partition_index < 0:
        return refused(ErrorCode.invalid_request)
    limit = min(exchange.broker.settings.max_request_partition_size_limit, max(1, request.response_partition_limit))
    topics, next_cursor = _page(
        exchange, sorted(allowed), start, 0 if cursor is None else cursor.partition_index, limit
    )
    denied = [{"name": name, "error_code": ErrorCode.topic_authorization_failed} for name in sorted(wanted - allowed)]
    return exchange.response(topics=[*topics, *denied], next_cursor=next_cursor)


def _page(exchange: Exchange, names: Iterable[str], start: str, start_index: int, left: int) -> tuple[list[Any], Any]:
    """(topics with at most `left` partitions, cursor of the next page or None)."""
    topics: list[Any] = []
    for name in names:
        topic = exchange.broker.topics.topic(name)
        if topic is None:
            operations = exchange.operations(ResourceType.TOPIC, name, asked=True)
            code = _absent_code(name)
            topics.append({"name": name, "error_code": code, "topic_authorized_operations": operations})
            continue
        first = start_index if name == start else 0
        if left == 0:
            return topics, {"topic_name": name, "partition_index": first}
        last = min(first + left, len(topic.partitions))
        topics.append(_described(exchange, topic, first, last))
        if last < len(topic.partitions):
            return topics, {"topic_name": name, "partition_index": last}
        left -= max(0, last - first)
    return topics, None


def _described(exchange: Exchange, topic: Topic, first: int, last: int) -> dict[str, Any]:
    node_id = exchange.broker.node_id
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "partition_index": index,
                "leader_id": node_id,
                "leader_epoch": topic.partitions[index].log.leader_epoch,
                "replica_nodes": [node_id],
                "isr_nodes": [node_id],
                "eligible_leader_replicas": [],
                "last_known_elr": [],
            }
            for index in range(first, last)
        ],
        "topic_authorized_operations": exchange.operations(ResourceType.TOPIC, topic.name, asked=True),
    }
