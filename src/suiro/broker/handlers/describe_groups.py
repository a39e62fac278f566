"""DescribeGroups: state, protocol and members."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.groups.group import GroupState
from suiro.broker.handlers import NO_THROTTLE
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    groups = tuple(_one(broker, exchange, group_id) for group_id in request.groups)
    return exchange.response(throttle_time=NO_THROTTLE, groups=groups)


def _one(broker: Broker, exchange: Exchange, group_id: str) -> Any:
    group = broker.groups.group(group_id)
    if group is None:
        state = GroupState.EMPTY if broker.groups.committed(group_id) else GroupState.DEAD
        return exchange.make(
            "DescribedGroup",
            error_code=ErrorCode.none,
            group_id=group_id,
            group_state=state.value,
            protocol_type="",
            protocol_data="",
            members=(),
        )
    return exchange.make(
        "DescribedGroup",
        error_code=ErrorCode.none,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol or "",
        members=tuple(
            exchange.make(
                "DescribedGroupMember",
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )
