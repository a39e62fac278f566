"""Members of groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup of the classic protocol, and
ConsumerGroupHeartbeat (KIP-848)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from suiro.broker.coordination.groups.consumer_edge import new_member_id
from suiro.broker.coordination.groups.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    Heartbeat,
)
from suiro.broker.coordination.groups.group_member import JoinReply, JoinRequest, MemberIdentity, SyncReply, SyncRequest
from suiro.broker.exchange import Answer, Exchange, Later, Response
from suiro.broker.handlers import whole_ms
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.join_group.v9.request import JoinGroupRequest
    from kio.schema.leave_group.v2.request import LeaveGroupRequest as OneMemberRequest
    from kio.schema.leave_group.v5.request import LeaveGroupRequest
    from kio.schema.sync_group.v5.request import SyncGroupRequest

_PROTOCOL_OF_SYNC_SINCE = 5


def join_group(exchange: Exchange, request: JoinGroupRequest) -> Answer:
    """JoinGroup: is answered when the rebalance is complete."""
    exchange.check(Operation.READ, ResourceType.GROUP, request.group_id)
    if not request.group_id:
        return exchange.response(error_code=ErrorCode.invalid_group_id, member_id=request.member_id)
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
    exchange.broker.groups.join(request.group_id, join, lambda reply: later.give(_joined(exchange, reply)))
    return later


def _joined(exchange: Exchange, reply: JoinReply) -> Response:
    return exchange.response(
        error_code=reply.code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol if exchange.version >= 7 else reply.protocol or "",
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in reply.members
        ],
    )


def sync_group(exchange: Exchange, request: SyncGroupRequest) -> Answer:
    """SyncGroup: the leader brings the assignment; the others wait for it."""
    protocol_type, protocol = (getattr(request, name, None) for name in ("protocol_type", "protocol_name"))
    if exchange.version >= _PROTOCOL_OF_SYNC_SINCE and None in (protocol_type, protocol):
        raise RefusedError(ErrorCode.inconsistent_group_protocol)
    _check_group(exchange, request.group_id)
    sync = SyncRequest(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=protocol_type,
        protocol=protocol,
        assignments={entry.member_id: entry.assignment for entry in request.assignments},
    )
    later = Later()
    exchange.broker.groups.sync(request.group_id, sync, lambda reply: later.give(_synced(exchange, reply)))
    return later


def _synced(exchange: Exchange, reply: SyncReply) -> Response:
    return exchange.response(
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )


def heartbeat(exchange: Exchange, request: HeartbeatRequest) -> Answer:
    """Heartbeat: keeps the member in the group, and announces a rebalance."""
    _check_group(exchange, request.group_id)
    member = MemberIdentity(request.member_id, getattr(request, "group_instance_id", None), request.generation_id)
    return exchange.response(error_code=exchange.broker.groups.heartbeat(request.group_id, member))


def leave_group(exchange: Exchange, request: LeaveGroupRequest) -> Answer:
    """LeaveGroup: removes one member, or (version 3) several."""
    _check_group(exchange, request.group_id)
    leave = exchange.broker.groups.leave
    if exchange.version < 3:
        one = cast("OneMemberRequest", request)
        return exchange.response(error_code=leave(one.group_id, member_id=one.member_id, instance_id=None))
    return exchange.response(
        members=[
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "error_code": leave(request.group_id, member_id=member.member_id, instance_id=member.group_instance_id),
            }
            for member in request.members
        ]
    )


def _check_group(exchange: Exchange, group_id: str) -> None:
    exchange.check(Operation.READ, ResourceType.GROUP, group_id)
    if not group_id:
        raise RefusedError(ErrorCode.invalid_group_id)


def consumer_group_heartbeat(exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> Answer:
    """ConsumerGroupHeartbeat (KIP-848): joins, stays in and leaves a group, and reports the owned partitions."""
    if not exchange.broker.features.has_consumer_protocol:
        raise RefusedError(ErrorCode.unsupported_version)
    if not exchange.may(Operation.READ, ResourceType.GROUP, request.group_id):
        raise RefusedError(ErrorCode.group_authorization_failed)
    names = request.subscribed_topic_names or ()
    if not all(exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in set(names)):
        raise RefusedError(ErrorCode.topic_authorization_failed)
    consumers = exchange.broker.groups.consumers
    _check_form(exchange, request)
    reply = consumers.heartbeat(
        request.group_id,
        _heartbeat(exchange, request),
        may_describe=lambda name: exchange.permits(Operation.DESCRIBE, ResourceType.TOPIC, name),
    )
    leaves = reply.member_epoch < JOINING_EPOCH
    interval_ms = 0 if leaves else consumers.limits(request.group_id).heartbeat_interval_ms
    assignment = None
    if reply.assignment is not None:
        assigned = [
            {"topic_id": topic_id, "partitions": sorted(partitions)}
            for topic_id, partitions in reply.assignment.items()
        ]
        assignment = {"topic_partitions": assigned}
    return exchange.response(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval=timedelta(milliseconds=interval_ms),
        assignment=assignment,
    )


def _heartbeat(exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
    owned: Any = request.topic_partitions
    return Heartbeat(
        member_id=request.member_id or new_member_id(),
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=whole_ms(request.rebalance_timeout),
        topic_names=request.subscribed_topic_names,
        topic_regex=getattr(request, "subscribed_topic_regex", None),
        server_assignor=request.server_assignor,
        owned=None if owned is None else {entry.topic_id: frozenset(entry.partitions) for entry in owned},
        client_id=exchange.client_id,
        client_host="/" + exchange.connection.host,
    )


def _check_form(exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raises `RefusedError`."""
    epoch = request.member_epoch
    regex = getattr(request, "subscribed_topic_regex", None)
    needs_member_id = exchange.version >= 1 or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH
    for name, text in (
        ("MemberId", request.member_id if needs_member_id else None),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == JOINING_EPOCH:
        if whole_ms(request.rebalance_timeout) == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == STATIC_LEAVING_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    known = exchange.broker.groups.consumers.limits(request.group_id).assignors
    if request.server_assignor is not None and request.server_assignor not in known:
        raise RefusedError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(known)}.",
        )


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.invalid_request, message)
