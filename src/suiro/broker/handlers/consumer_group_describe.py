"""ConsumerGroupDescribe (KIP-848): epochs, members, their current and their target assignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from suiro.broker.answers import Answer
from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.consumer_member import ConsumerMember
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.describe_groups import without_members
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest


_CLASSIC, _CONSUMER = 0, 1


def handle(exchange: Exchange, request: ConsumerGroupDescribeRequest) -> Answer:
    refused, described = [], []
    # Each once: a large group named thousands of times would fill the node's memory.
    for group_id in dict.fromkeys(request.group_ids):
        if not exchange.broker.features.has_consumer_protocol:
            refused.append(without_members(exchange, group_id, ErrorCode.unsupported_version))
        elif not exchange.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            refused.append(without_members(exchange, group_id, ErrorCode.group_authorization_failed))
        elif not group_id:
            refused.append(without_members(exchange, "", ErrorCode.invalid_group_id))
        else:
            described.append(_one(exchange, request, group_id))
    return exchange.response(groups=(*refused, *described))


def _one(exchange: Exchange, request: ConsumerGroupDescribeRequest, group_id: str) -> Any:
    broker = exchange.broker
    group = broker.groups.current(group_id)
    if not isinstance(group, ConsumerGroup):
        why = "not found" if group is None else "is not a consumer group"
        return without_members(exchange, group_id, ErrorCode.group_id_not_found, f"Group {group_id} {why}.")
    names = {
        broker.topics.topic_by_id(topic_id)
        for member in group.members.values()
        for owned in (member.assigned, member.pending_revocation, group.target.get(member.member_id, {}))
        for topic_id in owned
    }
    seen = [topic.name for topic in names if topic is not None]
    if not all(exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in seen):
        return without_members(
            exchange,
            group_id,
            ErrorCode.topic_authorization_failed,
            "The group has described topic(s) that the client is not authorized to describe.",
        )
    limits = broker.groups.consumers.limits(group_id)
    return exchange.make(
        "DescribedGroup",
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor or limits.assignors[0],
        members=tuple(_member(exchange, group, member) for member in group.members.values()),
        authorized_operations=exchange.operations(
            ResourceType.GROUP, group_id, asked=request.include_authorized_operations
        ),
    )


def _member(exchange: Exchange, group: ConsumerGroup, member: ConsumerMember) -> Any:
    owned: dict[UUID, list[int]] = {}
    for part in (member.assigned, member.pending_revocation):
        for topic_id, epochs in part.items():
            owned.setdefault(topic_id, []).extend(epochs)
    return exchange.make(
        "Member",
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topic_names)),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(exchange, owned),
        target_assignment=_assignment(exchange, group.target.get(member.member_id, {})),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(exchange: Exchange, partitions: Mapping[UUID, Iterable[int]]) -> Any:
    """Topics that were deleted meanwhile are left out."""
    made = []
    for topic_id, some in partitions.items():
        topic = exchange.broker.topics.topic_by_id(topic_id)
        if topic is not None:
            made.append(
                exchange.make(
                    "TopicPartitions",
                    topic_id=topic_id,
                    topic_name=topic.name,
                    partitions=tuple(sorted(some)),
                )
            )
    return exchange.make("Assignment", topic_partitions=tuple(made))
