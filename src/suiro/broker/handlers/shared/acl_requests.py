"""Parts of CreateAcls, DeleteAcls and DescribeAcls: unknown words, filters, and the right to change rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.net.connection import BadFrameError
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import AclFilter, Operation, PatternType, Permission, ResourceType
from suiro.broker.security.acl_store import AclStore
from suiro.broker.security.authorizer import AclAuthorizer
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.broker.exchange import Exchange

_UNKNOWN = 0


def check_known(*words: int) -> None:
    """Raises `BadFrameError` if a word is UNKNOWN: Kafka does not parse such a request."""
    if _UNKNOWN in words:
        raise BadFrameError("a request about access control rules has a word that is not known")


def read_filter(message: Any) -> AclFilter:
    """The filter of a DeleteAcls or DescribeAcls request."""
    check_known(
        message.resource_type_filter,
        message.pattern_type_filter,
        message.operation,
        message.permission_type,
    )
    return AclFilter(
        kind=ResourceType(message.resource_type_filter),
        name=message.resource_name_filter,
        pattern=PatternType(message.pattern_type_filter),
        principal=message.principal_filter,
        host=message.host_filter,
        operation=Operation(message.operation),
        permission=Permission(message.permission_type),
    )


def rules_to_change(exchange: Exchange) -> AclStore:
    """The node's rules, if this client may change them and there are any to change. Raises `RefusedError`."""
    if not exchange.may_on_cluster(Operation.ALTER):
        raise RefusedError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
    if not isinstance(exchange.broker.authorizer, AclAuthorizer):
        raise RefusedError(ErrorCode.security_disabled, "No Authorizer is configured.")
    return exchange.broker.authorizer.acls
