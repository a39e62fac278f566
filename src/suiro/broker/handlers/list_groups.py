"""ListGroups: every group with members or committed offsets."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.groups.group import GroupState
from suiro.broker.handlers import NO_THROTTLE
from suiro.protocol.messages import ErrorCode

_CLASSIC = "classic"


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    listed = []
    for group_id in sorted(broker.groups.group_ids()):
        group = broker.groups.group(group_id)
        state = (group.state if group else GroupState.EMPTY).value
        if (states and state.lower() not in states) or (types and _CLASSIC not in types):
            continue
        listed.append(
            exchange.make(
                "ListedGroup",
                group_id=group_id,
                protocol_type=(group.protocol_type if group else None) or "",
                group_state=state,
                group_type=_CLASSIC,
            )
        )
    return exchange.response(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=tuple(listed))
