"""SyncGroup: the leader brings the assignment; the others wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer, Later, Response
from suiro.broker.coordination.groups.group_messages import SyncReply, SyncRequest
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.sync_group.v5.request import SyncGroupRequest


_FIRST_VERSION_WITH_PROTOCOL = 5


def handle(exchange: Exchange, request: SyncGroupRequest) -> Answer:
    protocol_type, protocol = (getattr(request, name, None) for name in ("protocol_type", "protocol_name"))
    if exchange.version >= _FIRST_VERSION_WITH_PROTOCOL and None in (protocol_type, protocol):
        return _response(exchange, SyncReply(token=None, code=ErrorCode.inconsistent_group_protocol))
    if not exchange.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return _response(exchange, SyncReply(token=None, code=ErrorCode.group_authorization_failed))
    if not request.group_id:
        return _response(exchange, SyncReply(token=None, code=ErrorCode.invalid_group_id))
    sync = SyncRequest(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=protocol_type,
        protocol=protocol,
        assignments={entry.member_id: entry.assignment for entry in request.assignments},
    )
    later = Later()
    exchange.broker.groups.sync(request.group_id, sync, lambda reply: later.give(_response(exchange, reply)))
    return later


def _response(exchange: Exchange, reply: SyncReply) -> Response:
    return exchange.response(
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )
