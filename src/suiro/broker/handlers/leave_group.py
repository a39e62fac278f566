"""LeaveGroup: removes one member, or (version 3) several."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.leave_group.v2.request import LeaveGroupRequest as OneMemberRequest
    from kio.schema.leave_group.v5.request import LeaveGroupRequest


def handle(exchange: Exchange, request: LeaveGroupRequest) -> Answer:
    code = ErrorCode.none
    if not exchange.may(Operation.READ, ResourceType.GROUP, request.group_id):
        code = ErrorCode.group_authorization_failed
    elif not request.group_id:
        code = ErrorCode.invalid_group_id
    if code is not ErrorCode.none:
        return exchange.response(error_code=code, members=())
    if exchange.version < 3:
        one = cast("OneMemberRequest", request)
        code = exchange.broker.groups.leave(one.group_id, member_id=one.member_id, instance_id=None)
        return exchange.response(error_code=code)
    members = tuple(
        exchange.make(
            "MemberResponse",
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=exchange.broker.groups.leave(
                request.group_id, member_id=member.member_id, instance_id=member.group_instance_id
            ),
        )
        for member in request.members
    )
    return exchange.response(error_code=ErrorCode.none, members=members)
