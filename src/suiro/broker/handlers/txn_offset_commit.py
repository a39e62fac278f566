"""TxnOffsetCommit: offsets that become valid when the transaction commits (KIP-98, KIP-447).

As with Produce, only into the transaction that this producer has open; up to version 4 the group's partition of
`__consumer_offsets` must be a part of it, from version 5 on (transactions V2) it becomes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.coordination.transactions.admission import admit_writes, is_open_in
from suiro.broker.coordination.transactions.state import V1, V2
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.shared.offset_requests import commit_known, refuse_all, topic_id_of
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation, ResourceType
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest


def handle(exchange: Exchange, request: TxnOffsetCommitRequest) -> Answer:
    codes = _commit(exchange, request)
    if exchange.version < 2:
        # Older producers give up at LOAD_IN_PROGRESS.
        codes = {
            place: ErrorCode.coordinator_not_available if code is ErrorCode.coordinator_load_in_progress else code
            for place, code in codes.items()
        }
    topics = tuple(
        exchange.make(
            "TxnOffsetCommitResponseTopic",
            name=topic.name,
            partitions=tuple(
                exchange.make(
                    "TxnOffsetCommitResponsePartition",
                    partition_index=entry.partition_index,
                    error_code=codes[topic.name, entry.partition_index],
                )
                for entry in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return exchange.response(topics=topics)


def _commit(exchange: Exchange, request: TxnOffsetCommitRequest) -> dict[TopicPartition, ErrorCode]:
    if not exchange.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refuse_all(request.topics, ErrorCode.transactional_id_authorization_failed)
    if not exchange.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse_all(request.topics, ErrorCode.group_authorization_failed)
    permitted: list[Any] = []
    forbidden: list[Any] = []
    for topic in request.topics:
        may = exchange.may(Operation.READ, ResourceType.TOPIC, topic.name)
        (permitted if may else forbidden).append(topic)
    codes = refuse_all(forbidden, ErrorCode.topic_authorization_failed)
    known: dict[TopicPartition, Any] = {}
    for topic in permitted:
        for entry in topic.partitions:
            place = (topic.name, int(entry.partition_index))
            if exchange.broker.topics.partition(*place) is None:
                codes[place] = ErrorCode.unknown_topic_or_partition
            else:
                known[place] = entry
    refusal = _check(exchange, request, known) if known else ErrorCode.none
    if refusal is not ErrorCode.none:
        return codes | dict.fromkeys(known, refusal)
    producer = (request.producer_id, request.producer_epoch)
    return codes | commit_known(exchange.broker, request.group_id, known, producer=producer)


def _check(
    exchange: Exchange,
    request: TxnOffsetCommitRequest,
    places: Iterable[TopicPartition],
) -> ErrorCode:
    """The code that refuses the whole commit, which is for these partitions."""
    broker = exchange.broker
    if not request.group_id:
        return ErrorCode.invalid_group_id
    try:
        offsets = broker.groups.partition_of(request.group_id)
    except RefusedError as refusal:
        return refusal.code
    if not is_open_in(offsets, request.producer_id, request.producer_epoch):
        code = admit_writes(
            broker.transactions,
            request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            partitions=(offsets,),
            version=V2 if exchange.version >= 5 else V1,
        ).get((offsets.topic, offsets.index), ErrorCode.none)
        if code is ErrorCode.transaction_abortable and exchange.version < 4:
            return ErrorCode.invalid_txn_state
        if code is not ErrorCode.none:
            return code
    return broker.groups.offsets.check_commit(
        request.group_id,
        member_id=getattr(request, "member_id", ""),
        instance_id=getattr(request, "group_instance_id", None),
        generation=getattr(request, "generation_id", -1),
        transactional=True,
        places=[(topic_id_of(broker, name), index) for name, index in places],
    )
