"""DescribeGroups: state, protocol and members of classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.coordination.groups.group import Group, GroupState
from suiro.broker.exchange import OPERATIONS_NOT_ASKED, Exchange
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest


_FIRST_VERSION_WITH_NOT_FOUND = 6


def handle(exchange: Exchange, request: DescribeGroupsRequest) -> Answer:
    refused, described = [], []
    # Each once: a large group named thousands of times would fill the node's memory.
    for group_id in dict.fromkeys(request.groups):
        if not exchange.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            refused.append(without_members(exchange, group_id, ErrorCode.group_authorization_failed))
        else:
            described.append(_one(exchange, request, group_id))
    return exchange.response(groups=(*refused, *described))


def _one(exchange: Exchange, request: DescribeGroupsRequest, group_id: str) -> Any:
    operations = exchange.operations(
        ResourceType.GROUP, group_id, asked=getattr(request, "include_authorized_operations", False)
    )
    group = exchange.broker.groups.current(group_id)
    if not isinstance(group, Group):
        why = "not found" if group is None else "is not a classic group"
        if exchange.version >= _FIRST_VERSION_WITH_NOT_FOUND:
            code, message = ErrorCode.group_id_not_found, f"Group {group_id} {why}."
            return without_members(exchange, group_id, code, message, state=GroupState.DEAD.value)
        return without_members(exchange, group_id, ErrorCode.none, state=GroupState.DEAD.value, operations=operations)
    is_stable = group.state is GroupState.STABLE
    return exchange.make(
        "DescribedGroup",
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=tuple(
            exchange.make(
                "DescribedGroupMember",
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ),
        authorized_operations=operations,
    )


def without_members(
    exchange: Exchange,
    group_id: str,
    code: ErrorCode,
    message: str | None = None,
    *,
    state: str = "",
    operations: int = OPERATIONS_NOT_ASKED,
) -> Any:
    """A group that is not described, in the answer of this API or of ConsumerGroupDescribe."""
    return exchange.make(
        "DescribedGroup",
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state=state,
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=operations,
    )
