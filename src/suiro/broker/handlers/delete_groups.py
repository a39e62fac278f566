"""DeleteGroups: deletes groups without members, with their committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation, ResourceType
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest


def handle(exchange: Exchange, request: DeleteGroupsRequest) -> Answer:
    deleted, refused = [], []
    for group_id in dict.fromkeys(request.groups_names):
        if not exchange.may(Operation.DELETE, ResourceType.GROUP, group_id):
            refused.append(_result(exchange, group_id, ErrorCode.group_authorization_failed))
        else:
            deleted.append(_result(exchange, group_id, exchange.broker.groups.delete(group_id)))
    return exchange.response(results=(*deleted, *refused))


def _result(exchange: Exchange, group_id: str, code: ErrorCode) -> Any:
    return exchange.make("DeletableGroupResult", group_id=group_id, error_code=code)
