"""JoinGroup: is answered when the rebalance is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer, Later, Response
from suiro.broker.coordination.groups.group_messages import JoinReply, JoinRequest
from suiro.broker.exchange import Exchange
from suiro.broker.handlers import whole_ms
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.join_group.v9.request import JoinGroupRequest


def handle(exchange: Exchange, request: JoinGroupRequest) -> Answer:
    if not exchange.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return _response(exchange, JoinReply(token=None, code=ErrorCode.group_authorization_failed))
    if not request.group_id:
        return _response(exchange, JoinReply(token=None, code=ErrorCode.invalid_group_id, member_id=request.member_id))
    session_timeout_ms = whole_ms(request.session_timeout)
    rebalance_timeout = getattr(request, "rebalance_timeout", None)  # version 0 has none
    instance_id = getattr(request, "group_instance_id", None)
    join = JoinRequest(
        member_id=request.member_id,
        instance_id=instance_id,
        client_id=exchange.client_id,
        client_host="/" + exchange.connection.host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout is None else whole_ms(rebalance_timeout),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        needs_known_member_id=exchange.version >= 4 and instance_id is None,
        may_skip_assignment=exchange.version >= 9,
    )
    later = Later()
    exchange.broker.groups.join(request.group_id, join, lambda reply: later.give(_response(exchange, reply)))
    return later


def _response(exchange: Exchange, reply: JoinReply) -> Response:
    return exchange.response(
        error_code=reply.code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol if exchange.version >= 7 else reply.protocol or "",
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=tuple(
            exchange.make(
                "JoinGroupResponseMember",
                member_id=member_id,
                group_instance_id=instance_id,
                metadata=metadata,
            )
            for member_id, instance_id, metadata in reply.members
        ),
    )
