"""OffsetCommit: commits offsets for a member of a group, or for a consumer that assigns its partitions itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.handlers import whole_ms
from suiro.broker.handlers.shared.offset_requests import commit_known, topic_id_of, topic_named
from suiro.broker.security.acl import Operation, ResourceType
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.offset_commit.v10.request import OffsetCommitRequest


def handle(exchange: Exchange, request: OffsetCommitRequest) -> Answer:
    if not exchange.may(Operation.READ, ResourceType.GROUP, request.group_id):
        refused = [
            _answer(exchange, topic, [(entry, ErrorCode.group_authorization_failed) for entry in topic.partitions])
            for topic in request.topics
        ]
        return exchange.response(topics=tuple(refused))
    failed: list[Any] = []
    valid: list[tuple[Any, str, list[Any]]] = []
    for topic in request.topics:
        name, code = topic_named(exchange, topic, Operation.READ)
        known: list[Any] = []
        unknown: list[Any] = []
        for entry in topic.partitions:
            exists = (
                code is ErrorCode.none and exchange.broker.topics.partition(name, entry.partition_index) is not None
            )
            (known if exists else unknown).append(entry)
        if code is ErrorCode.none:
            code = ErrorCode.unknown_topic_or_partition
        if known:
            valid.append((topic, name, known))
        if unknown:
            failed.append((topic, [(entry, code) for entry in unknown]))
    places = {(name, int(entry.partition_index)): entry for _, name, known in valid for entry in known}
    codes = _commit(exchange, request, places)
    # As in Kafka, the partitions refused before the group was asked come first, each topic once.
    answers = {id(topic): (topic, entries) for topic, entries in failed}
    for topic, name, known in valid:
        _, entries = answers.setdefault(id(topic), (topic, []))
        entries += [(entry, codes[name, entry.partition_index]) for entry in known]
    topics = tuple(_answer(exchange, topic, entries) for topic, entries in answers.values())
    return exchange.response(topics=topics)


def _commit(
    exchange: Exchange,
    request: OffsetCommitRequest,
    entries: dict[TopicPartition, Any],
) -> dict[TopicPartition, ErrorCode]:
    broker = exchange.broker
    if not entries:
        return {}
    code = broker.groups.offsets.check_commit(
        request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id_or_member_epoch,
        transactional=False,
        version=exchange.version,
        places=[(topic_id_of(broker, name), index) for name, index in entries],
    )
    if code is not ErrorCode.none:
        return dict.fromkeys(entries, code)
    retention = getattr(request, "retention_time", None)
    retention_ms = None if retention is None else whole_ms(retention)
    return commit_known(broker, request.group_id, entries, retention_ms=None if retention_ms == -1 else retention_ms)


def _answer(exchange: Exchange, topic: Any, entries: list[tuple[Any, ErrorCode]]) -> Any:
    return exchange.make(
        "OffsetCommitResponseTopic",
        name=getattr(topic, "name", ""),
        topic_id=getattr(topic, "topic_id", None),
        partitions=tuple(
            exchange.make("OffsetCommitResponsePartition", partition_index=entry.partition_index, error_code=code)
            for entry, code in entries
        ),
    )
