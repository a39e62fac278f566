"""TxnOffsetCommit: offsets that count when the transaction commits (KIP-98, KIP-447).

As with Produce, only into the transaction that this producer has open, and only if the group's partition of
`__consumer_offsets` is a part of it.
"""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.offset_commits import commit_offsets, refuse_all
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    code = _check(broker, request)
    if code is ErrorCode.none:
        producer = (request.producer_id, request.producer_epoch)
        codes = commit_offsets(broker, request.group_id, request.topics, producer=producer)
    else:
        codes = refuse_all(request.topics, code)
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
    return exchange.response(throttle_time=NO_THROTTLE, topics=topics)


def _check(broker: Broker, request: Any) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.invalid_group_id
    offsets = broker.groups.partition_of(request.group_id)
    code = broker.transactions.verify(
        request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        partition=(offsets.topic, offsets.index),
    )
    match code:
        case ErrorCode.none:
            return broker.groups.check_commit(
                request.group_id,
                member_id=getattr(request, "member_id", ""),
                instance_id=getattr(request, "group_instance_id", None),
                generation=getattr(request, "generation_id", -1),
                transactional=True,
            )
        case ErrorCode.producer_fenced:
            return ErrorCode.invalid_producer_epoch  # what producers expect to hear here
        case ErrorCode.concurrent_transactions:
            return ErrorCode.coordinator_load_in_progress  # retriable in every client
        case ErrorCode.transaction_abortable:
            return ErrorCode.invalid_txn_state  # known to the versions before 5
    return code
