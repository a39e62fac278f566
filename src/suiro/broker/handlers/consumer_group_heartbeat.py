"""ConsumerGroupHeartbeat (KIP-848): joins, stays in and leaves a group, and reports the owned partitions."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer, Response
from suiro.broker.coordination.groups.consumer_edge import new_member_id
from suiro.broker.coordination.groups.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
)
from suiro.broker.coordination.groups.consumer_messages import Heartbeat
from suiro.broker.exchange import Exchange
from suiro.broker.handlers import whole_ms
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest


_NOT_NOW = timedelta(0)


def handle(exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> Answer:
    if not exchange.broker.features.has_consumer_protocol:
        return _refused(exchange, ErrorCode.unsupported_version, None)
    if not exchange.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return _refused(exchange, ErrorCode.group_authorization_failed, None)
    names = request.subscribed_topic_names or ()
    if not all(exchange.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in set(names)):
        return _refused(exchange, ErrorCode.topic_authorization_failed, None)
    try:
        _check_form(exchange, request)
        reply = exchange.broker.groups.consumers.heartbeat(
            request.group_id,
            _heartbeat(exchange, request),
            may_describe=lambda name: exchange.permits(Operation.DESCRIBE, ResourceType.TOPIC, name),
        )
    except RefusedError as refusal:
        return _refused(exchange, refusal.code, str(refusal))
    assignment = None
    if reply.assignment is not None:
        assignment = exchange.make(
            "Assignment",
            topic_partitions=tuple(
                exchange.make("TopicPartitions", topic_id=topic_id, partitions=tuple(sorted(partitions)))
                for topic_id, partitions in reply.assignment.items()
            ),
        )
    leaves = reply.member_epoch < JOINING_EPOCH
    interval_ms = 0 if leaves else exchange.broker.groups.consumers.limits(request.group_id).heartbeat_interval_ms
    return exchange.response(
        error_code=ErrorCode.none,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval=timedelta(milliseconds=interval_ms),
        assignment=assignment,
    )


def _refused(exchange: Exchange, code: ErrorCode, message: str | None) -> Response:
    return exchange.response(
        error_code=code,
        error_message=message,
        member_epoch=0,
        heartbeat_interval=_NOT_NOW,
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
    if exchange.version >= 1 or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH:
        _not_empty(request.member_id, "MemberId can't be empty.")
    _not_empty(request.group_id, "GroupId can't be empty.")
    _not_empty(request.instance_id, "InstanceId can't be empty.")
    _not_empty(request.rack_id, "RackId can't be empty.")
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


def _not_empty(text: str | None, message: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(message)


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.invalid_request, message)
