"""OffsetCommit: by a member of the group, or by a consumer that manages its partitions itself."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.offset_commits import commit_offsets, refuse_all
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    code = broker.groups.check_commit(
        request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id_or_member_epoch,
        transactional=False,
    )
    if code is ErrorCode.none:
        codes = commit_offsets(broker, request.group_id, request.topics)
    else:
        codes = refuse_all(request.topics, code)
    topics = tuple(
        exchange.make(
            "OffsetCommitResponseTopic",
            name=topic.name,
            partitions=tuple(
                exchange.make(
                    "OffsetCommitResponsePartition",
                    partition_index=entry.partition_index,
                    error_code=codes[topic.name, entry.partition_index],
                )
                for entry in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return exchange.response(throttle_time=NO_THROTTLE, topics=topics)
