"""ListGroups: the groups with members or committed offsets, filtered by state and type on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer
from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.group import CONSUMER_PROTOCOL
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.list_groups.v5.request import ListGroupsRequest


_CLASSIC, _CONSUMER = "classic", "consumer"


def handle(exchange: Exchange, request: ListGroupsRequest) -> Answer:
    sees_all = exchange.permits(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    states = {state.strip().lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    listed = []
    for group_id, group in sorted(exchange.broker.groups.all_current().items()):
        kind = _CONSUMER if isinstance(group, ConsumerGroup) else _CLASSIC
        state = group.state.value
        if (states and state.lower() not in states) or (types and kind not in types):
            continue
        if not sees_all and not exchange.permits(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            continue
        protocol_type = CONSUMER_PROTOCOL if isinstance(group, ConsumerGroup) else group.protocol_type or ""
        listed.append(
            exchange.make(
                "ListedGroup",
                group_id=group_id,
                protocol_type=protocol_type,
                group_state=state,
                group_type=kind,
            )
        )
    return exchange.response(error_code=ErrorCode.none, groups=tuple(listed))
