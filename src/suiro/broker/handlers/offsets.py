"""Committed offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from uuid import UUID

from suiro.broker.context import BrokerContext
from suiro.broker.coordination.groups import CommittedOffset
from suiro.broker.coordination.groups.group_member import MemberIdentity
from suiro.broker.coordination.groups.records import OffsetValue
from suiro.broker.coordination.transactions.state import V1, V2
from suiro.broker.exchange import Answer, Exchange
from suiro.broker.handlers import whole_ms
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation, ResourceType
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.offset_commit.v10.request import OffsetCommitRequest
    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
    from kio.schema.offset_fetch.v1.request import OffsetFetchRequest as OneGroupRequest
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequest
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest

_Codes: TypeAlias = dict[TopicPartition, ErrorCode]
_Told: TypeAlias = set[tuple[str, str, int]]
"""(group, topic, partition) of the offsets in the answer. Each is told once: it is long with its metadata, and named
thousands of times it would fill the node's memory."""

_FIRST_VERSION_WITH_GROUPS = 8
_FIRST_VERSION_WITH_TOPIC_IDS = 10


def offset_commit(exchange: Exchange, request: OffsetCommitRequest) -> Answer:
    """OffsetCommit: commits offsets for a member of a group, or for a consumer that assigns its partitions itself."""
    if not exchange.may(Operation.READ, ResourceType.GROUP, request.group_id):
        code = ErrorCode.group_authorization_failed
        refused = [_committed(topic, [(entry, code) for entry in topic.partitions]) for topic in request.topics]
        return exchange.response(topics=refused)
    failed: list[Any] = []
    valid: list[tuple[Any, str, list[Any]]] = []
    for topic in request.topics:
        name, code = _topic_named(exchange, topic, Operation.READ)
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
    codes = _commit_by_member(exchange, request, places) if places else {}
    # As in Kafka, the partitions refused before the group was asked come first, each topic once.
    answers = {id(topic): (topic, entries) for topic, entries in failed}
    for topic, name, known in valid:
        _, entries = answers.setdefault(id(topic), (topic, []))
        entries += [(entry, codes[name, entry.partition_index]) for entry in known]
    return exchange.response(topics=[_committed(topic, entries) for topic, entries in answers.values()])


def _committed(topic: Any, entries: list[tuple[Any, ErrorCode]]) -> dict[str, Any]:
    return {
        "name": getattr(topic, "name", ""),
        "topic_id": getattr(topic, "topic_id", None),
        "partitions": [{"partition_index": entry.partition_index, "error_code": code} for entry, code in entries],
    }


def _commit_by_member(exchange: Exchange, request: OffsetCommitRequest, entries: dict[TopicPartition, Any]) -> _Codes:
    broker = exchange.broker
    instance_id = getattr(request, "group_instance_id", None)
    code = broker.groups.offsets.check_commit(
        request.group_id,
        MemberIdentity(request.member_id, instance_id, request.generation_id_or_member_epoch),
        transactional=False,
        version=exchange.version,
        places=_by_id(broker, entries),
    )
    if code is not ErrorCode.none:
        return dict.fromkeys(entries, code)
    retention = getattr(request, "retention_time", None)
    retention_ms = None if retention is None else whole_ms(retention)
    return _commit(broker, request.group_id, entries, retention_ms=None if retention_ms == -1 else retention_ms)


def txn_offset_commit(exchange: Exchange, request: TxnOffsetCommitRequest) -> Answer:
    """TxnOffsetCommit: offsets that become valid when the transaction commits (KIP-98, KIP-447).

    As with Produce, only into the transaction that this producer has open; up to version 4 the group's partition of
    `__consumer_offsets` must be a part of it, from version 5 on (transactions V2) it becomes one.
    """
    codes = _commit_in_transaction(exchange, request)
    if exchange.version < 2:
        # Older producers give up at LOAD_IN_PROGRESS.
        codes = {
            place: ErrorCode.coordinator_not_available if code is ErrorCode.coordinator_load_in_progress else code
            for place, code in codes.items()
        }
    return exchange.response(
        topics=[
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": entry.partition_index, "error_code": codes[topic.name, entry.partition_index]}
                    for entry in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    )


def _commit_in_transaction(exchange: Exchange, request: TxnOffsetCommitRequest) -> _Codes:
    named = [(topic.name, int(entry.partition_index), entry) for topic in request.topics for entry in topic.partitions]
    every = [(name, index) for name, index, _ in named]
    if not exchange.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return dict.fromkeys(every, ErrorCode.transactional_id_authorization_failed)
    if not exchange.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return dict.fromkeys(every, ErrorCode.group_authorization_failed)
    may_read = {topic.name: exchange.may(Operation.READ, ResourceType.TOPIC, topic.name) for topic in request.topics}
    codes: _Codes = {}
    known: dict[TopicPartition, Any] = {}
    for name, index, entry in named:
        if not may_read[name]:
            codes[name, index] = ErrorCode.topic_authorization_failed
        elif exchange.broker.topics.partition(name, index) is None:
            codes[name, index] = ErrorCode.unknown_topic_or_partition
        else:
            known[name, index] = entry
    refusal = _check_in_transaction(exchange, request, known) if known else ErrorCode.none
    if refusal is not ErrorCode.none:
        return codes | dict.fromkeys(known, refusal)
    producer = (request.producer_id, request.producer_epoch)
    return codes | _commit(exchange.broker, request.group_id, known, producer=producer)


def _check_in_transaction(
    exchange: Exchange, request: TxnOffsetCommitRequest, places: Iterable[TopicPartition]
) -> ErrorCode:
    """The code that refuses the whole commit, which is for these partitions."""
    broker = exchange.broker
    if not request.group_id:
        return ErrorCode.invalid_group_id
    try:
        offsets = broker.groups.partition_of(request.group_id)
    except RefusedError as refusal:
        return refusal.code
    if not offsets.has_open_transaction(request.producer_id, request.producer_epoch):
        code = broker.transactions.admit(
            request.transactional_id,
            producer=(request.producer_id, request.producer_epoch),
            partitions=(offsets,),
            version=V2 if exchange.version >= 5 else V1,
        ).get((offsets.topic, offsets.index), ErrorCode.none)
        if code is ErrorCode.transaction_abortable and exchange.version < 4:
            return ErrorCode.invalid_txn_state
        if code is not ErrorCode.none:
            return code
    instance_id = getattr(request, "group_instance_id", None)
    member = MemberIdentity(getattr(request, "member_id", ""), instance_id, getattr(request, "generation_id", -1))
    return broker.groups.offsets.check_commit(
        request.group_id, member, transactional=True, places=_by_id(broker, places)
    )


def _by_id(broker: BrokerContext, places: Iterable[TopicPartition]) -> list[tuple[UUID, int]]:
    """Of partitions that exist."""
    found = ((broker.topics.topic(name), index) for name, index in places)
    return [(topic.topic_id, index) for topic, index in found if topic is not None]


def _commit(
    broker: BrokerContext,
    group_id: str,
    entries: Mapping[TopicPartition, Any],
    *,
    producer: tuple[int, int] | None = None,
    retention_ms: int | None = None,
) -> _Codes:
    """Commit a request's entries for partitions that exist. The code of each."""
    now = broker.clock.wall_ms()
    codes: _Codes = {}
    accepted: dict[TopicPartition, OffsetValue] = {}
    for place, entry in entries.items():
        metadata = entry.committed_metadata or ""
        if len(metadata.encode("utf-16-le")) // 2 > broker.settings.offset_metadata_max_bytes:
            codes[place] = ErrorCode.offset_metadata_too_large
            continue
        codes[place] = ErrorCode.none
        topic = broker.topics.topic(place[0])
        accepted[place] = OffsetValue(
            offset=entry.committed_offset,
            leader_epoch=getattr(entry, "committed_leader_epoch", -1),
            metadata=metadata,
            commit_ms=now,
            expire_ms=None if retention_ms is None else now + retention_ms,
            topic_id=topic.topic_id if topic is not None and producer is None else None,
        )
    try:
        broker.groups.offsets.commit(group_id, accepted, producer=producer)
    except RefusedError as refusal:
        codes.update(dict.fromkeys(accepted, refusal.code))
    return codes


def _topic_named(exchange: Exchange, topic: Any, operation: Operation) -> tuple[str, ErrorCode]:
    """The name of a topic of a request, and whether the client may do this with it. Newer versions name topics by
    id."""
    name = getattr(topic, "name", None)
    if name is None:
        found = exchange.broker.topics.topic_by_id(topic.topic_id)
        if found is None:
            return "", ErrorCode.unknown_topic_id
        name = found.name
    if not exchange.may(operation, ResourceType.TOPIC, name):
        return name, ErrorCode.topic_authorization_failed
    return name, ErrorCode.none


def offset_fetch(exchange: Exchange, request: OffsetFetchRequest) -> Answer:
    """OffsetFetch: committed offsets of one group, or (version 8) of several; of some partitions, or of all."""
    stable = getattr(request, "require_stable", False)
    told: _Told = set()
    if exchange.version < _FIRST_VERSION_WITH_GROUPS:
        code, topics = _of_group(exchange, request, told, stable=stable)
        if code is not ErrorCode.none and exchange.version < 2:
            topics = [_refused(topic, topic.name, code) for topic in cast("OneGroupRequest", request).topics]
        return exchange.response(topics=topics, error_code=code)
    groups = []
    whole: set[str] = set()
    for group in request.groups:
        if group.topics is None:  # all offsets of the group, once too
            if group.group_id in whole:
                continue
            whole.add(group.group_id)
        code, topics = _of_group(exchange, group, told, stable=stable)
        groups.append({"group_id": group.group_id, "topics": topics, "error_code": code})
    return exchange.response(groups=groups)


def _of_group(exchange: Exchange, group: Any, told: _Told, *, stable: bool) -> tuple[ErrorCode, list[Any]]:
    group_id = group.group_id
    if not exchange.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return ErrorCode.group_authorization_failed, []
    offsets = exchange.broker.groups.offsets
    code = offsets.check_fetch(
        group_id, member_id=getattr(group, "member_id", None), member_epoch=getattr(group, "member_epoch", -1)
    )
    if code is not ErrorCode.none:
        return code, []
    undecided = offsets.store.undecided(group_id) if stable else frozenset()
    if group.topics is None:
        return ErrorCode.none, _all(exchange, group_id, undecided)
    found, refused = [], []
    for topic in group.topics:
        name, code = _topic_named(exchange, topic, Operation.DESCRIBE)
        if code is ErrorCode.none:
            found.append(_of_topic(exchange, group_id, name, topic, undecided, told))
        else:
            refused.append(_refused(topic, name, code))
    return ErrorCode.none, [*found, *refused]


def _all(exchange: Exchange, group_id: str, undecided: Container[TopicPartition]) -> list[Any]:
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
            _partition(index, committed.get((name, index)), is_undecided=(name, index) in undecided)
            for index in indexes
        ]
        answers.append({"name": name, "topic_id": known.topic_id if known else None, "partitions": partitions})
    return answers


def _of_topic(
    exchange: Exchange,
    group_id: str,
    name: str,
    topic: Any,
    undecided: Container[TopicPartition],
    told: _Told,
) -> dict[str, Any]:
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
        partitions.append(_partition(index, found, is_undecided=(name, index) in undecided))
    return {"name": name, "topic_id": topic_id, "partitions": partitions}


def _refused(topic: Any, name: str, code: ErrorCode) -> dict[str, Any]:
    partitions = [_partition(index, None, code=code) for index in topic.partition_indexes]
    return {"name": name, "topic_id": getattr(topic, "topic_id", None), "partitions": partitions}


def _partition(
    index: int, committed: CommittedOffset | None, *, is_undecided: bool = False, code: ErrorCode = ErrorCode.none
) -> dict[str, Any]:
    value = None if committed is None or is_undecided else committed.value
    return {
        "partition_index": index,
        "committed_offset": -1 if value is None else value.offset,
        "committed_leader_epoch": -1 if value is None else value.leader_epoch,
        "metadata": "" if value is None else value.metadata,
        "error_code": ErrorCode.unstable_offset_commit if is_undecided else code,
    }


def offset_delete(exchange: Exchange, request: OffsetDeleteRequest) -> Answer:
    """OffsetDelete: deletes committed offsets of topics to which the group is not subscribed."""
    exchange.check(Operation.DELETE, ResourceType.GROUP, request.group_id)
    codes: _Codes = {}
    places: list[TopicPartition] = []
    for topic in request.topics:
        may = exchange.may(Operation.READ, ResourceType.TOPIC, topic.name)
        for entry in topic.partitions:
            place = (topic.name, entry.partition_index)
            if not may:
                codes[place] = ErrorCode.topic_authorization_failed
            elif exchange.broker.topics.partition(*place) is None:
                codes[place] = ErrorCode.unknown_topic_or_partition
            else:
                places.append(place)
    if not request.group_id:
        raise RefusedError(ErrorCode.invalid_group_id)
    done = exchange.broker.groups.offsets.delete(request.group_id, places)
    by_topic: dict[str, list[Any]] = {}
    for (name, index), code in (codes | done).items():
        by_topic.setdefault(name, []).append({"partition_index": index, "error_code": code})
    return exchange.response(topics=[{"name": name, "partitions": some} for name, some in by_topic.items()])
