"""Groups as administrators see them: ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups.

A group is described once, however often a request names it: a large group named thousands of times would fill the
node's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.consumer_member import ConsumerMember
from suiro.broker.coordination.groups.group import CONSUMER_PROTOCOL, Group, GroupState
from suiro.broker.exchange import Answer, Exchange
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
    from kio.schema.list_groups.v5.request import ListGroupsRequest

_FIRST_VERSION_WITH_NOT_FOUND = 6
_CLASSIC, _CONSUMER = 0, 1


def list_groups(exchange: Exchange, request: ListGroupsRequest) -> Answer:
    """ListGroups: the groups with members or committed offsets, filtered by state and type on request."""
    sees_all = exchange.permits(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    states = {state.strip().lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    listed = []
    for group_id, group in sorted(exchange.broker.groups.all_current().items()):
        is_consumer = isinstance(group, ConsumerGroup)
        kind = "consumer" if is_consumer else "classic"
        state = group.state.value
        if (states and state.lower() not in states) or (types and kind not in types):
            continue
        if not sees_all and not exchange.permits(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            continue
        protocol_type = CONSUMER_PROTOCOL if isinstance(group, ConsumerGroup) else group.protocol_type or ""
        listed.append({"group_id": group_id, "protocol_type": protocol_type, "group_state": state, "group_type": kind})
    return exchange.response(groups=listed)


def describe_groups(exchange: Exchange, request: DescribeGroupsRequest) -> Answer:
    """DescribeGroups: state, protocol and members of classic groups."""
    return exchange.response(
        groups=_each(exchange, request.groups, lambda group_id: _classic(exchange, request, group_id))
    )


def consumer_group_describe(exchange: Exchange, request: ConsumerGroupDescribeRequest) -> Answer:
    """ConsumerGroupDescribe (KIP-848): epochs, members, their current and their target assignments."""
    if not exchange.broker.features.has_consumer_protocol:
        refused = [_refused(group_id, ErrorCode.unsupported_version) for group_id in dict.fromkeys(request.group_ids)]
        return exchange.response(groups=refused)
    return exchange.response(
        groups=_each(exchange, request.group_ids, lambda group_id: _consumer(exchange, request, group_id))
    )


def _each(exchange: Exchange, group_ids: Iterable[str], describe: Callable[[str], dict[str, Any]]) -> list[Any]:
    """As in Kafka, the refused ones come first."""
    refused: list[Any] = []
    described: list[Any] = []
    for group_id in dict.fromkeys(group_ids):
        try:
            exchange.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
            described.append(describe(group_id))
        except RefusedError as refusal:
            refused.append(_refused(group_id, refusal.code))
    return [*refused, *described]


def _refused(group_id: str, code: ErrorCode, message: str | None = None) -> dict[str, Any]:
    return {"group_id": group_id, "error_code": code, "error_message": message}


def _classic(exchange: Exchange, request: DescribeGroupsRequest, group_id: str) -> dict[str, Any]:
    operations = exchange.operations(
        ResourceType.GROUP, group_id, asked=getattr(request, "include_authorized_operations", False)
    )
    group = exchange.broker.groups.current(group_id)
    if not isinstance(group, Group):
        dead = {"group_id": group_id, "group_state": GroupState.DEAD.value}
        if exchange.version < _FIRST_VERSION_WITH_NOT_FOUND:
            return {**dead, "authorized_operations": operations}
        why = "not found" if group is None else "is not a classic group"
        return {**dead, **_refused(group_id, ErrorCode.group_id_not_found, f"Group {group_id} {why}.")}
    is_stable = group.state is GroupState.STABLE
    return {
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if is_stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if is_stable else b"",
                "member_assignment": member.assignment if is_stable else b"",
            }
            for member in group.members.values()
        ],
        "authorized_operations": operations,
    }


def _consumer(exchange: Exchange, request: ConsumerGroupDescribeRequest, group_id: str) -> dict[str, Any]:
    if not group_id:
        raise RefusedError(ErrorCode.invalid_group_id)
    broker = exchange.broker
    group = broker.groups.current(group_id)
    if not isinstance(group, ConsumerGroup):
        why = "not found" if group is None else "is not a consumer group"
        return _refused(group_id, ErrorCode.group_id_not_found, f"Group {group_id} {why}.")
    names = {
        broker.topics.topic_by_id(topic_id)
        for member in group.members.values()
        for owned in (member.assigned, member.pending_revocation, group.target.get(member.member_id, {}))
        for topic_id in owned
    }
    seen = [topic.name for topic in names if topic is not None]
    if not all(exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in seen):
        message = "The group has described topic(s) that the client is not authorized to describe."
        return _refused(group_id, ErrorCode.topic_authorization_failed, message)
    return {
        "group_id": group_id,
        "group_state": group.state.value,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor or broker.groups.consumers.limits(group_id).assignors[0],
        "members": [_member(exchange, group, member) for member in group.members.values()],
        "authorized_operations": exchange.operations(
            ResourceType.GROUP, group_id, asked=request.include_authorized_operations
        ),
    }


def _member(exchange: Exchange, group: ConsumerGroup, member: ConsumerMember) -> dict[str, Any]:
    owned: dict[UUID, list[int]] = {}
    for part in (member.assigned, member.pending_revocation):
        for topic_id, epochs in part.items():
            owned.setdefault(topic_id, []).extend(epochs)
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "subscribed_topic_regex": member.topic_regex,
        "assignment": _assignment(exchange, owned),
        "target_assignment": _assignment(exchange, group.target.get(member.member_id, {})),
        "member_type": _CONSUMER if member.classic is None else _CLASSIC,
    }


def _assignment(exchange: Exchange, partitions: Mapping[UUID, Iterable[int]]) -> dict[str, Any]:
    """Topics that were deleted meanwhile are left out."""
    named = ((exchange.broker.topics.topic_by_id(topic_id), some) for topic_id, some in partitions.items())
    return {
        "topic_partitions": [
            {"topic_id": topic.topic_id, "topic_name": topic.name, "partitions": sorted(some)}
            for topic, some in named
            if topic is not None
        ]
    }


def delete_groups(exchange: Exchange, request: DeleteGroupsRequest) -> Answer:
    """DeleteGroups: deletes groups without members, with their committed offsets."""
    deleted, refused = [], []
    for group_id in dict.fromkeys(request.groups_names):
        if exchange.may(Operation.DELETE, ResourceType.GROUP, group_id):
            deleted.append({"group_id": group_id, "error_code": exchange.broker.groups.delete(group_id)})
        else:
            refused.append(_refused(group_id, ErrorCode.group_authorization_failed))
    return exchange.response(results=[*deleted, *refused])
