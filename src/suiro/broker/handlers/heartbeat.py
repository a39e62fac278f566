"""Heartbeat: keeps the member in the group, and announces a rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4.request import HeartbeatRequest


def handle(exchange: Exchange, request: HeartbeatRequest) -> Answer:
    code = ErrorCode.invalid_group_id
    if not exchange.may(Operation.READ, ResourceType.GROUP, request.group_id):
        code = ErrorCode.group_authorization_failed
    elif request.group_id:
        code = exchange.broker.groups.heartbeat(
            request.group_id,
            member_id=request.member_id,
            instance_id=getattr(request, "group_instance_id", None),
            generation=request.generation_id,
        )
    return exchange.response(error_code=code)
