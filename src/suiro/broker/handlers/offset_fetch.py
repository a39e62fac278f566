"""OffsetFetch: committed offsets of one group, or (version 8) of several; of some partitions, or of all."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from suiro.broker.answers import Answer
from suiro.broker.coordination.groups import CommittedOffset
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.shared.offset_requests import topic_named
from suiro.broker.security.acl import Operation, ResourceType
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.offset_fetch.v1.request import OffsetFetchRequest as OneGroupRequest
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequest


_Told: TypeAlias = set[tuple[str, str, int]]
"""(group, topic, partition) of the offsets in the answer. Each is told once: it is long with its metadata, and named
thousands of times it would fill the node's memory."""

_FIRST_VERSION_WITH_GROUPS = 8
_FIRST_VERSION_WITH_TOPIC_IDS = 10


def handle(exchange: Exchange, request: OffsetFetchRequest) -> Answer:
    stable = getattr(request, "require_stable", False)
    told: _Told = set()
    if exchange.version < _FIRST_VERSION_WITH_GROUPS:
        code, topics = _group(exchange, request, told, stable=stable)
        if code is not ErrorCode.none and exchange.version < 2:
            asked = cast("OneGroupRequest", request).topics
            topics = tuple(_refused(exchange, topic, topic.name, code) for topic in asked)
        return exchange.response(topics=topics, error_code=code)
    groups = []
    whole: set[str] = set()
    for group in request.groups:
        if group.topics is None:  # all offsets of the group, once too
            if group.group_id in whole:
                continue
            whole.add(group.group_id)
        code, topics = _group(exchange, group, told, stable=stable)
        groups.append(
            exchange.make("OffsetFetchResponseGroup", group_id=group.group_id, topics=topics, error_code=code)
        )
    return exchange.response(groups=tuple(groups))


def _group(exchange: Exchange, group: Any, told: _Told, *, stable: bool) -> tuple[ErrorCode, tuple[Any, ...]]:
    group_id = group.group_id
    if not exchange.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return ErrorCode.group_authorization_failed, ()
    code = exchange.broker.groups.offsets.check_fetch(
        group_id, member_id=getattr(group, "member_id", None), member_epoch=getattr(group, "member_epoch", -1)
    )
    if code is not ErrorCode.none:
        return code, ()
    undecided = exchange.broker.groups.offsets.store.undecided(group_id) if stable else frozenset()
    if group.topics is None:
        return ErrorCode.none, _all(exchange, group_id, undecided)
    found, refused = [], []
    for topic in group.topics:
        name, code = topic_named(exchange, topic, Operation.DESCRIBE)
        if code is ErrorCode.none:
            found.append(_topic(exchange, group_id, name, topic, undecided, told))
        else:
            refused.append(_refused(exchange, topic, name, code))
    return ErrorCode.none, (*found, *refused)


def _all(exchange: Exchange, group_id: str, undecided: Container[TopicPartition]) -> tuple[Any, ...]:
    """Every topic that the client may see; those without an id cannot be told in the versions that go by ids."""
    committed = exchange.broker.groups.offsets.store.committed(group_id)
    places: dict[str, list[int]] = {}
    for topic, index in sorted(committed):
        places.setdefault(topic, []).append(index)
    answers = []
    for name, indexes in places.items():
        if not exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            continue
        known = exchange.broker.topics.topic(name)
        if exchange.version >= _FIRST_VERSION_WITH_TOPIC_IDS and known is None:
            continue
        partitions = [
            _partition(exchange, index, committed.get((name, index)), is_undecided=(name, index) in undecided)
            for index in indexes
        ]
        answers.append(_made(exchange, name, known.topic_id if known else None, partitions))
    return tuple(answers)


def _topic(
    exchange: Exchange,
    group_id: str,
    name: str,
    topic: Any,
    undecided: Container[TopicPartition],
    told: _Told,
) -> Any:
    committed = exchange.broker.groups.offsets.store.committed(group_id)
    topic_id = getattr(topic, "topic_id", None)
    partitions = []
    for index in topic.partition_indexes:
        if (group_id, name, index) in told:
            continue
        told.add((group_id, name, index))
        found = committed.get((name, index))
        if found is not None and topic_id is not None and found.value.topic_id not in (None, topic_id):
            found = None  # it was committed for an earlier topic of the same name
        is_undecided = (name, index) in undecided
        partitions.append(_partition(exchange, index, found, is_undecided=is_undecided))
    return _made(exchange, name, topic_id, partitions)


def _refused(exchange: Exchange, topic: Any, name: str, code: ErrorCode) -> Any:
    partitions = [_partition(exchange, index, None, code=code) for index in topic.partition_indexes]
    return _made(exchange, name, getattr(topic, "topic_id", None), partitions)


def _suffix(exchange: Exchange) -> str:
    """From version 8 on the nested types have a plural name."""
    return "s" if exchange.version >= _FIRST_VERSION_WITH_GROUPS else ""


def _made(exchange: Exchange, name: str, topic_id: Any, partitions: list[Any]) -> Any:
    return exchange.make(
        "OffsetFetchResponseTopic" + _suffix(exchange),
        name=name,
        topic_id=topic_id,
        partitions=tuple(partitions),
    )


def _partition(
    exchange: Exchange,
    index: int,
    committed: CommittedOffset | None,
    *,
    is_undecided: bool = False,
    code: ErrorCode = ErrorCode.none,
) -> Any:
    value = None if committed is None or is_undecided else committed.value
    return exchange.make(
        "OffsetFetchResponsePartition" + _suffix(exchange),
        partition_index=index,
        committed_offset=-1 if value is None else value.offset,
        committed_leader_epoch=-1 if value is None else value.leader_epoch,
        metadata="" if value is None else value.metadata,
        error_code=ErrorCode.unstable_offset_commit if is_undecided else code,
    )
